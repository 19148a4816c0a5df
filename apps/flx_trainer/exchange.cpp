#include "apps/flx_trainer/exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

namespace flx::trainer {
namespace {

constexpr int kAbortCode = 3;

}  // namespace

Exchange::Exchange(Backend backend, MPI_Comm mpi_comm, flx_comm_t flx_comm, std::vector<Bucket> buckets)
    : backend_(backend), mpi_comm_(mpi_comm), flx_comm_(flx_comm), buckets_(std::move(buckets)) {
    MPI_Comm_rank(mpi_comm_, &rank_);
}

ExchangeTime Exchange::reduce(std::span<float> gradients, std::size_t step, const Corruption &corruption) {
    const bool damaged = corruption.when != Corruption::When::never && corruption.rank == rank_ &&
                         corruption.step == step && !buckets_.empty();
    const auto first = buckets_.empty() ? gradients : gradients.subspan(buckets_[0].offset, buckets_[0].count);
    if (damaged && corruption.when == Corruption::When::before) {
        corrupt(first);
    }
    const double start = MPI_Wtime();
    MPI_Barrier(mpi_comm_);
    const double all_here = MPI_Wtime();
    for (const Bucket &bucket : buckets_) {
        float *data = gradients.data() + bucket.offset;
        if (backend_ == Backend::flx) {
            require(flx_allreduce(FLX_IN_PLACE, data, bucket.count, FLX_F32, FLX_SUM, flx_comm_), "flx_allreduce");
        } else {
            MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(bucket.count), MPI_FLOAT, MPI_SUM, mpi_comm_);
        }
    }
    const double done = MPI_Wtime();
    if (damaged && corruption.when == Corruption::When::after) {
        corrupt(first);
    }
    return {(all_here - start) * 1e6, (done - all_here) * 1e6};
}

void require(flx_status_t status, const char *call) {
    if (status == FLX_SUCCESS) {
        return;
    }
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fmt::print(stderr, "flx_trainer: rank {}: {}: {}: {}\n", rank, call, flx_strerror(status), flx_last_error());
    std::fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, kAbortCode);
}

std::vector<LinkBytes> local_link_bytes(flx_comm_t comm) {
    std::size_t count = 0;
    require(flx_comm_link_stats(comm, nullptr, sizeof(flx_link_stats_t), 0, &count), "flx_comm_link_stats");
    std::vector<flx_link_stats_t> stats(count);
    require(flx_comm_link_stats(comm, stats.data(), sizeof(flx_link_stats_t), stats.size(), &count),
            "flx_comm_link_stats");
    stats.resize(std::min(stats.size(), count));
    std::vector<LinkBytes> links;
    for (const flx_link_stats_t &entry : stats) {
        links.push_back({entry.name, entry.bytes_sent});
    }
    return links;
}

std::vector<LinkBytes> total_link_bytes(flx_comm_t comm, MPI_Comm mpi_comm) {
    // Names differ between hosts, so they travel as text: `name bytes\n` for each link.
    std::string mine;
    for (const LinkBytes &link : local_link_bytes(comm)) {
        mine += fmt::format("{} {}\n", link.name, link.bytes);
    }
    int ranks = 1;
    MPI_Comm_size(mpi_comm, &ranks);
    const int length = static_cast<int>(mine.size());
    std::vector<int> lengths(static_cast<std::size_t>(ranks));
    MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, mpi_comm);
    std::vector<int> starts;
    int sum = 0;
    for (const int part : lengths) {
        starts.push_back(sum);
        sum += part;
    }
    std::string all(static_cast<std::size_t>(sum), '\0');
    MPI_Allgatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(), starts.data(), MPI_CHAR, mpi_comm);

    std::vector<LinkBytes> links;
    for (std::size_t at = 0; at < all.size();) {
        const std::size_t space = all.find(' ', at);
        const std::size_t end = all.find('\n', at);
        const std::string name = all.substr(at, space - at);
        const std::uint64_t bytes = std::stoull(all.substr(space + 1, end - space - 1));
        const auto known =
            std::find_if(links.begin(), links.end(), [&](const LinkBytes &link) { return link.name == name; });
        if (known == links.end()) {
            links.push_back({name, bytes});
        } else {
            known->bytes += bytes;
        }
        at = end + 1;
    }
    return links;
}

}  // namespace flx::trainer

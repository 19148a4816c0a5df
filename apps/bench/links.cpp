#include "apps/bench/links.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "apps/bench/timing.h"

namespace flx::bench {

LinkCounters::LinkCounters(flx_comm_t comm, MPI_Comm mpi_comm) : comm_(comm) {
    size_t count = 16;  // usually enough at once
    do {
        stats_.resize(count);
        status_ = flx_comm_link_stats(comm, stats_.data(), sizeof(flx_link_stats_t), stats_.size(), &count);
    } while (status_ == FLX_SUCCESS && count > stats_.size());
    stats_.resize(status_ == FLX_SUCCESS ? count : 0);
    constexpr int kName = sizeof(flx_link_stats_t::name);
    int ranks = 0;
    MPI_Comm_size(mpi_comm, &ranks);
    const auto own = static_cast<int>(stats_.size()) * kName;
    std::vector<int> lengths(static_cast<size_t>(ranks));
    MPI_Allgather(&own, 1, MPI_INT, lengths.data(), 1, MPI_INT, mpi_comm);
    std::vector<int> starts(lengths.size());
    std::exclusive_scan(lengths.begin(), lengths.end(), starts.begin(), 0);
    std::vector<char> mine(static_cast<size_t>(own));
    for (size_t i = 0; i < stats_.size(); ++i) {
        std::memcpy(&mine[i * kName], stats_[i].name, kName);
    }
    std::vector<char> all(static_cast<size_t>(starts.back() + lengths.back()));
    MPI_Allgatherv(mine.data(), own, MPI_CHAR, all.data(), lengths.data(), starts.data(), MPI_CHAR, mpi_comm);

    const auto column = [&](const char *name) {
        return static_cast<size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
    };
    for (size_t at = 0; at < all.size(); at += kName) {
        if (column(&all[at]) == names_.size()) {
            names_.emplace_back(&all[at]);
        }
    }
    for (const flx_link_stats_t &link : stats_) {
        column_of_.push_back(column(link.name));
    }
}

void LinkCounters::read(uint64_t *bytes) {
    std::fill_n(bytes, names_.size(), 0);
    size_t count = 0;
    status_ = flx_comm_link_stats(comm_, stats_.data(), sizeof(flx_link_stats_t), stats_.size(), &count);
    for (size_t i = 0; i < std::min(count, stats_.size()); ++i) {
        bytes[column_of_[i]] += stats_[i].bytes_sent;
    }
}

std::vector<double> LinkCounters::vector() const {
    std::vector<double> shares(names_.size());
    for (size_t i = 0; i < stats_.size(); ++i) {
        shares[column_of_[i]] = stats_[i].share;
    }
    return shares;
}

std::vector<double> Carried::shares() const {
    std::vector<uint64_t> all = bytes_;
    MPI_Allreduce(MPI_IN_PLACE, all.data(), static_cast<int>(all.size()), MPI_UINT64_T, MPI_SUM, mpi_comm_);
    return shares_of(all);
}

}  // namespace flx::bench

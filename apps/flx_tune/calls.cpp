#include "apps/flx_tune/calls.h"

#include <mpi.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace flx::tune {
namespace {

/// What a call needs: `count` doubles a rank, `all` on all of them together.
struct Shape {
    const double *in;
    double *out;
    int count;
    int all;
    const int *counts;
    const int *offsets;
};

struct Entry {
    std::string_view name;
    void (*call)(const Shape &shape);
};

const std::array kEntries = {
    Entry{"allgather",
          [](const Shape &s) { MPI_Allgather(s.in, s.count, MPI_DOUBLE, s.out, s.count, MPI_DOUBLE, MPI_COMM_WORLD); }},
    Entry{"allgatherv",
          [](const Shape &s) {
              MPI_Allgatherv(s.in, s.count, MPI_DOUBLE, s.out, s.counts, s.offsets, MPI_DOUBLE, MPI_COMM_WORLD);
          }},
    Entry{"allreduce", [](const Shape &s) { MPI_Allreduce(s.in, s.out, s.all, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }},
    Entry{"alltoall",
          [](const Shape &s) { MPI_Alltoall(s.in, s.count, MPI_DOUBLE, s.out, s.count, MPI_DOUBLE, MPI_COMM_WORLD); }},
    Entry{"alltoallv",
          [](const Shape &s) {
              MPI_Alltoallv(s.in, s.counts, s.offsets, MPI_DOUBLE, s.out, s.counts, s.offsets, MPI_DOUBLE,
                            MPI_COMM_WORLD);
          }},
    Entry{"barrier", [](const Shape &) { MPI_Barrier(MPI_COMM_WORLD); }},
    Entry{"bcast", [](const Shape &s) { MPI_Bcast(s.out, s.all, MPI_DOUBLE, 0, MPI_COMM_WORLD); }},
    Entry{"exscan", [](const Shape &s) { MPI_Exscan(s.in, s.out, s.all, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }},
    Entry{"gather",
          [](const Shape &s) { MPI_Gather(s.in, s.count, MPI_DOUBLE, s.out, s.count, MPI_DOUBLE, 0, MPI_COMM_WORLD); }},
    Entry{"gatherv",
          [](const Shape &s) {
              MPI_Gatherv(s.in, s.count, MPI_DOUBLE, s.out, s.counts, s.offsets, MPI_DOUBLE, 0, MPI_COMM_WORLD);
          }},
    Entry{"reduce", [](const Shape &s) { MPI_Reduce(s.in, s.out, s.all, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD); }},
    Entry{"reduce_scatter",
          [](const Shape &s) { MPI_Reduce_scatter(s.in, s.out, s.counts, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }},
    Entry{"reduce_scatter_block",
          [](const Shape &s) { MPI_Reduce_scatter_block(s.in, s.out, s.count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }},
    Entry{"scan", [](const Shape &s) { MPI_Scan(s.in, s.out, s.all, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD); }},
    Entry{
        "scatter",
        [](const Shape &s) { MPI_Scatter(s.in, s.count, MPI_DOUBLE, s.out, s.count, MPI_DOUBLE, 0, MPI_COMM_WORLD); }},
    Entry{"scatterv",
          [](const Shape &s) {
              MPI_Scatterv(s.in, s.counts, s.offsets, MPI_DOUBLE, s.out, s.count, MPI_DOUBLE, 0, MPI_COMM_WORLD);
          }},
};

}  // namespace

std::vector<std::string> names() {
    std::vector<std::string> all;
    for (const Entry &entry : kEntries)
        all.emplace_back(entry.name);
    return all;
}

Calls::Calls(size_t largest) {
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    const auto ranks = static_cast<size_t>(ranks_);
    const size_t room = std::max(largest / sizeof(double), ranks);
    in_.assign(room, 0);
    out_.assign(room, 0);
    counts_.assign(ranks, 0);
    offsets_.assign(ranks, 0);
}

void Calls::call(const std::string &name, size_t bytes) {
    const auto ranks = static_cast<size_t>(ranks_);
    const size_t count = std::max<size_t>(1, bytes / sizeof(double) / ranks);
    for (size_t rank = 0; rank < ranks; ++rank) {
        counts_[rank] = static_cast<int>(count);
        offsets_[rank] = static_cast<int>(rank * count);
    }
    const size_t all = std::clamp<size_t>(bytes / sizeof(double), 1, in_.size());
    const Shape shape{in_.data(),     out_.data(),    static_cast<int>(count), static_cast<int>(all),
                      counts_.data(), offsets_.data()};
    const auto *const entry =
        std::find_if(kEntries.begin(), kEntries.end(), [&](const Entry &each) { return each.name == name; });
    entry->call(shape);
}

}  // namespace flx::tune

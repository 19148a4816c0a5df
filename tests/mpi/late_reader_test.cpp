/// A reader that is late for a broadcast whose root goes on: through further broadcasts, of which it needs to know
/// nothing, to an allgatherv in which the root shows less than others do. What the late reader has not read yet must
/// stay. `late_reader_test ROUNDS`.
#include <flx.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

namespace {

/// What the first broadcast has, which lies in a place of a kind of its own, how many others follow until that place
/// comes round again, and what other ranks than the root show in the allgatherv.
struct Lengths {
    size_t first;
    int others;
    size_t longest;
};
constexpr Lengths kLengths[] = {{1024, 3, 8192}, {4096, 3, 4097}, {200, 31, 1000}, {113, 31, 5000}};

void check(flx_status_t status) {
    if (status == FLX_SUCCESS)
        return;
    std::fprintf(stderr, "%s\n", flx_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/// Whether the broadcast was right.
bool round(flx_comm_t comm, int rank, int size, int number, const Lengths &lengths) {
    const auto value = static_cast<uint8_t>(1 + number % 100);
    std::vector<uint8_t> first(lengths.first, rank == 0 ? value : 0);
    std::vector<uint8_t> own(lengths.longest, static_cast<uint8_t>(128 + rank));
    std::vector<size_t> counts(size, lengths.longest);
    counts[0] = lengths.first;
    std::vector<size_t> places(size);
    std::exclusive_scan(counts.begin(), counts.end(), places.begin(), size_t{0});
    std::vector<uint8_t> all(places.back() + counts.back());
    check(flx_barrier(comm));
    if (rank != 0)
        usleep(3000);
    check(flx_bcast(first.data(), first.size(), FLX_UINT8, 0, comm));
    const bool right = std::ranges::all_of(first, [&](uint8_t byte) { return byte == value; });
    for (int i = 0; i < lengths.others; ++i) {
        uint64_t other = 7;
        check(flx_bcast(&other, 1, FLX_UINT64, 0, comm));
    }
    check(flx_allgatherv(own.data(), counts[rank], all.data(), counts.data(), places.data(), FLX_UINT8, comm));
    return right;
}

}  // namespace

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 1000;
    MPI_Init(&argc, &argv);
    int rank = 0;
    int size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    flx_comm_t comm = nullptr;
    check(flx_comm_create(MPI_COMM_WORLD, nullptr, &comm));
    int wrong = 0;
    for (int i = 0; i < rounds; ++i)
        wrong += round(comm, rank, size, i, kLengths[i % std::size(kLengths)]) ? 0 : 1;
    check(flx_comm_free(&comm));
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        std::printf("%d of %d broadcasts wrong\n", wrong, rounds);
    MPI_Finalize();
    return wrong == 0 ? 0 : 1;
}

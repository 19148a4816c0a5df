/// Two threads of every rank, each with communicators of its own: they make them at the same time, in orders that
/// differ between ranks, and call at the same time. Over the rails and, with `hosts`, over rails alone.
#include <flx.h>
#include <mpi.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kThreads = 2;
std::atomic<int> failures{0};

void expect(bool condition, const char *what, int thread) {
    if (condition)
        return;
    ++failures;
    std::fprintf(stderr, "thread %d: %s: %s\n", thread, what, flx_last_error());
}

void use(MPI_Comm mpi_comm, int thread, int rank, int size) {
    constexpr int kRounds = 3;
    constexpr int kCalls = 20;
    for (int round = 0; round < kRounds; ++round) {
        flx_comm_t comm = nullptr;
        expect(flx_comm_create(mpi_comm, nullptr, &comm) == FLX_SUCCESS, "create", thread);
        if (comm == nullptr)
            return;
        for (int call = 0; call < kCalls; ++call) {
            // Small and large: over boards and over chunks.
            const size_t count = call % 2 == 0 ? 5 : 50'000 + thread;
            std::vector<int32_t> data(count);
            for (size_t i = 0; i < count; ++i)
                data[i] = static_cast<int32_t>(i) * (rank + 1) + thread;
            expect(flx_allreduce(FLX_IN_PLACE, data.data(), count, FLX_INT32, FLX_SUM, comm) == FLX_SUCCESS,
                   "allreduce", thread);
            const int32_t ranks = size * (size + 1) / 2;
            bool right = true;
            for (size_t i = 0; i < count; ++i)
                right = right && data[i] == static_cast<int32_t>(i) * ranks + thread * size;
            expect(right, "a sum is wrong", thread);
        }
        expect(flx_comm_free(&comm) == FLX_SUCCESS, "free", thread);
    }
}

}  // namespace

int main(int argc, char **argv) {
    constexpr int kSkipped = 77;
    int level = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    if (level != MPI_THREAD_MULTIPLE) {
        std::puts("skipped: this MPI does not allow several threads");
        MPI_Finalize();
        return kSkipped;
    }
    int rank = 0;
    int size = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1 && std::string(argv[1]) == "hosts")
        setenv("FLX_HOST_ID", ("host" + std::to_string(rank)).c_str(), 1);
    MPI_Comm comms[kThreads];
    for (MPI_Comm &comm : comms)
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
        const int thread = rank % 2 == 0 ? i : kThreads - 1 - i;
        threads.emplace_back(use, comms[thread], thread, rank, size);
    }
    for (std::thread &thread : threads)
        thread.join();
    int mine = failures;
    int all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (MPI_Comm &comm : comms)
        MPI_Comm_free(&comm);
    MPI_Finalize();
    return all == 0 ? 0 : 1;
}

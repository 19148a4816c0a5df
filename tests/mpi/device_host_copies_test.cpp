/// Host memory of flx_malloc that a GPU copies a part of, under mpirun: collectives on memory that between them goes
/// back and comes again, also while the program captures a graph, every word checked; and the GPU must have taken part.
/// Skips without a GPU.
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/mpi/device_program.h"

namespace {

using flx::test::must;
using flx::test::rank_;
using flx::test::ranks_;

#define MUST(call) must((call), #call)

constexpr size_t kWords = size_t{6} << 20;  // of a vector of 24 MiB
constexpr int kRounds = 4;
constexpr int kCalls = 40;

int64_t checks = 0;
int64_t wrong = 0;

size_t number(int value) {
    return static_cast<size_t>(value);
}

uint32_t value(int call, int rank, size_t at) {
    return static_cast<uint32_t>((number(call) * 131 + number(rank)) * kWords + at);
}

struct Memory {
    uint32_t *in = nullptr;
    uint32_t *out = nullptr;

    Memory() {
        void *memory = nullptr;
        MUST(flx_malloc(kWords * sizeof(uint32_t), &memory));
        in = static_cast<uint32_t *>(memory);
        MUST(flx_malloc(kWords * sizeof(uint32_t), &memory));
        out = static_cast<uint32_t *>(memory);
    }
    ~Memory() {
        MUST(flx_free(in));
        MUST(flx_free(out));
    }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
};

/// One allgather, or one alltoall.
void run_call(flx_comm_t comm, const Memory &memory, int call) {
    const size_t block = kWords / number(ranks_);
    for (size_t i = 0; i < block * number(ranks_); ++i) {
        memory.in[i] = value(call, rank_, i);
        memory.out[i] = 0;
    }
    const bool all = call % 2 == 0;
    if (all)
        MUST(flx_allgather(memory.in, memory.out, block, FLX_UINT32, comm));
    else
        MUST(flx_alltoall(memory.in, memory.out, block, FLX_UINT32, comm));
    for (int from = 0; from < ranks_; ++from) {
        bool right = true;
        for (size_t i = 0; i < block; ++i)
            right = right &&
                    memory.out[number(from) * block + i] == value(call, from, (all ? 0 : number(rank_) * block) + i);
        ++checks;
        wrong += right ? 0 : 1;
        if (!right && wrong < 8)
            fmt::print(stderr, "rank {}: what came from rank {} in call {} is wrong\n", rank_, from, call);
    }
    MPI_Barrier(MPI_COMM_WORLD);  // in is filled again
}

/// MiB that a GPU copied for this rank, as its communicator reports it; else the line that says why not.
int64_t mebibytes_by_gpu(flx_comm_t comm, std::string &why) {
    std::vector<std::string> lines;
    MUST(flx_report(
        comm, [](const char *text, void *list) { static_cast<std::vector<std::string> *>(list)->emplace_back(text); },
        &lines));
    for (const std::string &line : lines) {
        const size_t at = line.find(" copied ");
        if (line.find("memory of flx_malloc") != std::string::npos && at != std::string::npos)
            return std::atoll(line.c_str() + at + 8);
        if (line.find("the cores alone copy") != std::string::npos)
            why = line;
    }
    return 0;
}

int run(const std::vector<std::string> & /*arguments*/) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        if (rank_ == 0)
            fmt::print("skipped: no GPU\n");
        return 77;
    }
    setenv("FLX_COPY_ENGINE", "on", 1);
    flx_comm_t comm = nullptr;
    MUST(flx_comm_create(MPI_COMM_WORLD, nullptr, &comm));
    int64_t copied = 0;
    std::string why;
    for (int round = 0; round < kRounds; ++round) {
        const Memory memory;
        for (int call = 0; call < kCalls; ++call)
            run_call(comm, memory, round * kCalls + call);
        const int64_t before = copied;
        copied = mebibytes_by_gpu(comm, why);
        if (rank_ == 0)
            fmt::print("round {}: {} MiB by a GPU\n", round, copied - before);
    }
    {
        const Memory memory;
        cudaStream_t stream = nullptr;
        cudaGraph_t graph = nullptr;
        void *device = nullptr;
        MUST(cudaMalloc(&device, 4096));
        MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        MUST(cudaMemsetAsync(device, 1, 4096, stream));
        for (int call = 0; call < kCalls; ++call)
            run_call(comm, memory, call);
        MUST(cudaStreamEndCapture(stream, &graph));
        MUST(cudaGetLastError());
        MUST(cudaGraphDestroy(graph));
        MUST(cudaStreamDestroy(stream));
        MUST(cudaFree(device));
    }
    copied = mebibytes_by_gpu(comm, why);
    MUST(flx_comm_free(&comm));
    int64_t all[3] = {checks, wrong, copied};
    MPI_Allreduce(MPI_IN_PLACE, all, 3, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank_ == 0)
        fmt::print("{} checks, {} wrong, {} MiB by GPUs {}\n", all[0], all[1], all[2], why);
    // Where several ranks share a GPU it may rightly be left alone.
    return all[1] == 0 && (all[2] > 0 || ranks_ > 2 * devices) ? 0 : 1;
}

}  // namespace

int main(int argc, char **argv) {
    return flx::test::run_ranks(argc, argv, run);
}

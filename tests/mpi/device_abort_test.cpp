/// What ends, and what waits, on GPUs: under mpirun with two ranks or more, which may share a GPU. Calls whose peer
/// never comes are aborted, alone and with hundreds behind them; communicators are made and freed while another stream
/// of the GPU waits for something that comes later; and memory comes back. Times are compared with what may be: a wait
/// for the whole GPU takes for ever here. Skips without a GPU.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/mpi/device_program.h"
#include "tests/mpi/parked_stream.h"

namespace {

using flx::test::must;
using flx::test::ParkedStream;
using flx::test::rank_;
using flx::test::ranks_;

#define MUST_CUDA(call) must((call), #call)

int64_t wrong = 0;
float *data = nullptr;
constexpr size_t kMost = size_t{8} << 20;  ///< bytes of it

void check(bool right, const std::string &what) {
    wrong += right ? 0 : 1;
    fmt::print("{}: rank {}: {}\n", right ? "right" : "wrong", rank_, what);
    std::fflush(stdout);
}

/// Runs it in a thread, so that one that hangs is seen: the seconds, and the program ends where it takes too long.
double timed(const std::string &what, double most, const std::function<void()> &body) {
    constexpr double kHangs = 20;
    std::atomic<bool> done{false};
    const double begin = MPI_Wtime();
    std::thread thread([&] {
        MUST_CUDA(cudaSetDevice(0));
        body();
        done = true;
    });
    while (!done && MPI_Wtime() - begin < kHangs)
        usleep(200);
    const double took = MPI_Wtime() - begin;
    check(done && took <= most,
          fmt::format("{} took {:.3f} s, {:.2f} may be{}", what, took, most, done ? "" : ": hangs"));
    if (!done)
        std::_Exit(1);
    thread.join();
    return took;
}

cudaStream_t new_stream() {
    cudaStream_t stream = nullptr;
    MUST_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

flx_comm_t new_comm() {
    flx_comm_t comm = nullptr;
    must(flx_comm_create(MPI_COMM_WORLD, nullptr, &comm), "flx_comm_create");
    return comm;
}

void add(flx_comm_t comm, size_t bytes, cudaStream_t stream) {
    must(flx_allreduce_on_stream(data, data, bytes / sizeof(float), FLX_F32, FLX_SUM, comm, stream), "an allreduce");
}

/// Values that no other call had, and no other rank: on all ranks, as often on each.
int turns = 0;
void begin_values(size_t bytes, cudaStream_t stream) {
    constexpr int kTurns = 50;
    turns = (turns + 1) % kTurns;
    std::vector<float> values(bytes / sizeof(float));
    for (size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>((rank_ + 1) * (turns + 1) + static_cast<int>(i % 97));
    MUST_CUDA(cudaMemcpyAsync(data, values.data(), bytes, cudaMemcpyHostToDevice, stream));
    MUST_CUDA(cudaStreamSynchronize(stream));
}
void check_values(size_t bytes, cudaStream_t stream, const std::string &what) {
    std::vector<float> values(bytes / sizeof(float));
    MUST_CUDA(cudaMemcpyAsync(values.data(), data, bytes, cudaMemcpyDeviceToHost, stream));
    MUST_CUDA(cudaStreamSynchronize(stream));
    size_t different = 0;
    for (size_t i = 0; i < values.size(); ++i) {
        const int sum = (turns + 1) * ranks_ * (ranks_ + 1) / 2 + ranks_ * static_cast<int>(i % 97);
        different += values[i] == static_cast<float>(sum) ? 0 : 1;
    }
    if (different != 0)
        check(false, fmt::format("{} of {} values of {} are others", different, values.size(), what));
}
/// Makes a call and checks what came out.
void add_values(flx_comm_t comm, size_t bytes, cudaStream_t stream, const std::string &what) {
    begin_values(bytes, stream);
    add(comm, bytes, stream);
    check_values(bytes, stream, what);
}

/// Rank 0 has `calls` of `bytes` on its stream to which nobody comes, and aborts.
void abort_queue(size_t bytes, int calls, bool beside) {
    const std::string what =
        fmt::format("{} calls of {} B{}", calls, bytes, beside ? " beside a stream that waits" : "");
    cudaStream_t stream = new_stream();
    flx_comm_t comm = new_comm();
    for (int turn = 0; turn < 3; ++turn)
        add_values(comm, bytes, stream, "a call before " + what);
    MPI_Barrier(MPI_COMM_WORLD);
    {
        const auto parked = beside ? std::make_unique<ParkedStream>() : nullptr;
        check(!beside || parked->waits(), "a stream that waits");
        if (rank_ == 0) {
            for (int turn = 0; turn < calls; ++turn)
                add(comm, bytes, stream);
            usleep(500'000);  // so that kernels wait
            const double begin = MPI_Wtime();
            timed("flx_comm_abort of " + what, 0.2, [&] { must(flx_comm_abort(comm, "a test"), "flx_comm_abort"); });
            timed("the stream's end of " + what, 0.3, [&] { MUST_CUDA(cudaStreamSynchronize(stream)); });
            check(MPI_Wtime() - begin < 0.4, "both of " + what);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        // The others may hear of it while they free theirs, and then wait a moment.
        timed("flx_comm_free after " + what, rank_ == 0 ? 0.5 : 3, [&] { (void)flx_comm_free(&comm); });
    }
    MPI_Barrier(MPI_COMM_WORLD);
    // With the windows of the one that was aborted, as soon as nobody writes into them any more.
    for (int turn = 0; turn < 3; ++turn) {
        comm = new_comm();
        for (const size_t size : {size_t{4096}, size_t{300} << 10, size_t{4} << 20})
            for (int call = 0; call < 3; ++call)
                add_values(comm, size, stream, fmt::format("a call of {} B after {}", size, what));
        must(flx_comm_free(&comm), "flx_comm_free");
    }
    MUST_CUDA(cudaStreamDestroy(stream));
}

/// A second communicator comes and goes while the first has a call under way that a rank makes only afterwards.
void make_beside_a_call() {
    cudaStream_t stream = new_stream();
    flx_comm_t first = new_comm();
    add_values(first, 4096, stream, "the first communicator's first call");
    MPI_Barrier(MPI_COMM_WORLD);
    float *const of_first = data + kMost / sizeof(float);
    if (rank_ == 0)
        must(flx_allreduce_on_stream(of_first, of_first, 1024, FLX_F32, FLX_SUM, first, stream), "the first's call");
    for (int turn = 0; turn < 3; ++turn) {
        const std::string which = fmt::format(" of communicator {} beside a call that waits", turn + 2);
        flx_comm_t second = nullptr;
        timed("making" + which, 1, [&] { second = new_comm(); });
        cudaStream_t other = new_stream();
        add_values(second, 4096, other, "a call" + which);
        timed("freeing" + which, 1, [&] { must(flx_comm_free(&second), "flx_comm_free"); });
        MUST_CUDA(cudaStreamDestroy(other));
    }
    if (rank_ != 0)
        must(flx_allreduce_on_stream(of_first, of_first, 1024, FLX_F32, FLX_SUM, first, stream), "the first's call");
    timed("the call's end", 1, [&] { MUST_CUDA(cudaStreamSynchronize(stream)); });
    std::vector<float> came(1024);
    MUST_CUDA(cudaMemcpyAsync(came.data(), of_first, 4096, cudaMemcpyDeviceToHost, stream));
    MUST_CUDA(cudaStreamSynchronize(stream));
    const auto sum = static_cast<float>(ranks_ * (ranks_ + 1) / 2);
    check(std::all_of(came.begin(), came.end(), [sum](float value) { return value == sum; }),
          "the call's values, whose peers came after all others");
    must(flx_comm_free(&first), "flx_comm_free");
    MUST_CUDA(cudaStreamDestroy(stream));
}

cudaGraphExec_t captured(flx_comm_t comm, size_t bytes, cudaStream_t stream) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t made = nullptr;
    MUST_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    add(comm, bytes, stream);
    add(comm, bytes, stream);
    MUST_CUDA(cudaStreamEndCapture(stream, &graph));
    MUST_CUDA(cudaGraphInstantiate(&made, graph, 0));
    MUST_CUDA(cudaGraphDestroy(graph));
    return made;
}

/// The GPU's memory is no less after many communicators, aborted or freed, than after a few: it is used again, after
/// the graphs that use it.
void keep_memory(bool graphs) {
    const std::string which = graphs ? " with graphs" : "";
    const auto round = [&] {
        cudaStream_t stream = new_stream();
        for (int turn = 0; turn < 4; ++turn) {
            flx_comm_t comm = new_comm();
            add_values(comm, 1 << 20, stream, "a call of one of many communicators" + which);
            cudaGraphExec_t graph = graphs ? captured(comm, 4096, stream) : nullptr;
            if (graphs) {
                MUST_CUDA(cudaGraphLaunch(graph, stream));
                MUST_CUDA(cudaStreamSynchronize(stream));
            }
            MPI_Barrier(MPI_COMM_WORLD);
            if (turn % 2 == 1)
                (void)flx_comm_abort(comm, "a test");
            MPI_Barrier(MPI_COMM_WORLD);
            (void)flx_comm_free(&comm);
            if (graphs && turn % 2 == 1) {  // it gives up, and touches nobody's memory
                MUST_CUDA(cudaGraphLaunch(graph, stream));
                flx_comm_t other = new_comm();
                add_values(other, 1 << 20, stream, "a call beside a replay after an abort");
                must(flx_comm_free(&other), "flx_comm_free");
            }
            if (graphs)
                MUST_CUDA(cudaGraphExecDestroy(graph));
            MPI_Barrier(MPI_COMM_WORLD);
        }
        MUST_CUDA(cudaStreamDestroy(stream));
        usleep(300'000);  // what is freed later
        MPI_Barrier(MPI_COMM_WORLD);
        flx_comm_t last = new_comm();
        must(flx_comm_free(&last), "flx_comm_free");
        MPI_Barrier(MPI_COMM_WORLD);
        size_t free = 0;
        size_t all = 0;
        MUST_CUDA(cudaMemGetInfo(&free, &all));
        MPI_Barrier(MPI_COMM_WORLD);
        return static_cast<double>(free) / 1048576;
    };
    const double before = round();
    double after = 0;
    for (int turn = 0; turn < 3; ++turn)
        after = round();
    check(before - after < 64,
          fmt::format("{:.0f} MiB free after 4 communicators{}, {:.0f} after 16", before, which, after));
}

int run(const std::vector<std::string> & /*arguments*/) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0 || ranks_ < 2) {
        if (rank_ == 0)
            fmt::print("skipped: there is no GPU, or one rank alone\n");
        return 77;
    }
    MUST_CUDA(cudaSetDevice(0));
    MUST_CUDA(cudaFree(nullptr));
    void *memory = nullptr;
    MUST_CUDA(cudaMalloc(&memory, 2 * kMost));
    data = static_cast<float *>(memory);
    const std::vector<float> own(1024, static_cast<float>(rank_ + 1));  // of make_beside_a_call's first communicator
    MUST_CUDA(cudaMemcpy(data + kMost / sizeof(float), own.data(), 4096, cudaMemcpyHostToDevice));
    MUST_CUDA(cudaDeviceSynchronize());
    // Packets, lines, tiles; as many as a stream takes without waiting for room.
    for (const size_t bytes : {size_t{4096}, size_t{300} << 10, size_t{4} << 20})
        for (const bool beside : {false, true})
            abort_queue(bytes, bytes == 4096 ? 600 : 100, beside);
    make_beside_a_call();
    keep_memory(false);
    keep_memory(true);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char **argv) {
    int given = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &given);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    const int code = run({argv + 1, argv + argc});
    MPI_Finalize();
    return code;
}

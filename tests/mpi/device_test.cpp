/// Collectives on GPU memory, under mpirun with a GPU a rank (or fewer GPUs than ranks, slowly): every type, reduction
/// and way against additions in rank order on the host, bit for bit; in place, misaligned, registered or not; in graphs
/// mixed with eager calls. `hosts`, as the first argument: every rank is told to be on a host of its own; `tiers`: each
/// half of them on one, so that calls go in two tiers. `... kill BYTES`, `stop`, `mismatch`: the last rank does so.
/// Skips without a GPU.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "apps/flx_lab/copies.h"
#include "runtime/api/api.h"
#include "runtime/elements/dtype.h"
#include "runtime/elements/reduce.h"
#include "runtime/include/flx.h"
#include "runtime/record/process_files.h"
#include "runtime/record/reader.h"
#include "tests/mpi/device_program.h"

namespace {

using Bytes = std::vector<unsigned char>;

using flx::test::must;
using flx::test::rank_;
using flx::test::ranks_;

int64_t checks = 0;      ///< of this rank: not all receive
int turn_of_inputs = 0;  ///< equal on all ranks
int64_t wrong = 0;
bool on_hosts = false;                      ///< ranks are told to be on several hosts
int near = 0;                               ///< not 0: in two tiers, with so many ranks on each of two hosts
flx::bench::lab::Copies *beside = nullptr;  ///< not null: runs while a collective does

#define MUST_CUDA(call) must((call), #call)

enum class Kind { allreduce, reduce_scatter_block, allgather, bcast, reduce, alltoall };
constexpr const char *kNames[] = {"allreduce", "reduce_scatter_block", "allgather", "bcast", "reduce", "alltoall"};

struct Case {
    Kind kind;
    flx_dtype_t dtype = FLX_F32;
    flx_op_t op = FLX_SUM;
    size_t count = 0;  ///< the call's
    bool in_place = false;
    size_t shift = 0;  ///< bytes between an allocation's beginning and the buffer
    int root = 0;
    bool blocking = false;
    bool mixed = false;  ///< in place on every other rank

    [[nodiscard]] bool reduces() const {
        return kind == Kind::allreduce || kind == Kind::reduce_scatter_block || kind == Kind::reduce;
    }
    [[nodiscard]] size_t element() const { return flx::size_of(dtype); }
    [[nodiscard]] size_t send_count() const {
        return kind == Kind::reduce_scatter_block || kind == Kind::alltoall ? count * ranks_ : count;
    }
    [[nodiscard]] size_t recv_count() const {
        return kind == Kind::allgather || kind == Kind::alltoall ? count * ranks_ : count;
    }
    /// Of this rank's buffers.
    [[nodiscard]] bool shares() const { return in_place && (!mixed || rank_ % 2 == 0); }
    [[nodiscard]] std::string text() const {
        return fmt::format("{} {} {} count {}{} shift {} root {}{}", kNames[static_cast<int>(kind)],
                           flx::name_of(dtype), flx::name_of(op), count,
                           mixed      ? " in place on some"
                           : in_place ? " in place"
                                      : "",
                           shift, root, blocking ? " blocking" : "");
    }
};

/// Sums of such numbers depend on their order; some are special.
Bytes input_of(const Case &test, int rank, int turn) {
    std::mt19937_64 random(1000003ULL * static_cast<unsigned>(rank) + 7919ULL * static_cast<unsigned>(turn) +
                           test.count);
    const size_t count = test.send_count();
    Bytes bytes(count * test.element());
    for (size_t i = 0; i < count; ++i) {
        unsigned char *at = &bytes[i * test.element()];
        const uint64_t bits = random();
        const auto number = static_cast<float>(static_cast<int64_t>(bits % 20001) - 10000) / 977.0F;
        uint32_t single = 0;
        std::memcpy(&single, &number, sizeof single);
        if (bits >> 54 == 1)
            single = 0x7fc00000;  // NaN
        if (bits >> 54 == 2)
            single = 0x80000000;  // -0
        switch (test.dtype) {
            case FLX_F32:
                std::memcpy(at, &single, sizeof single);
                break;
            case FLX_F64: {
                float value = 0;
                std::memcpy(&value, &single, sizeof value);
                const double wide = value / 3.0;
                std::memcpy(at, &wide, sizeof wide);
                break;
            }
            case FLX_BF16: {
                const auto half = static_cast<uint16_t>(single >> 16);
                std::memcpy(at, &half, sizeof half);
                break;
            }
            case FLX_F16: {
                const auto half = static_cast<uint16_t>(0x3000 + bits % 0x1800 + (bits >> 63 << 15));
                std::memcpy(at, &half, sizeof half);
                break;
            }
            case FLX_F8E4M3:
            case FLX_F8E5M2:  // of two ranks all pairs
                *at = static_cast<unsigned char>(rank == 0 ? i : rank == 1 ? i >> 8 : bits);
                break;
            default:
                std::memcpy(at, &bits, test.element());
        }
    }
    return bytes;
}

/// In two tiers, what hosts have made of their ranks' inputs is added. `divides_last`: averages are divided after they
/// were rounded, as rings do.
Bytes sum_of_hosts(const Case &test, const std::vector<const void *> &inputs, bool divides_last) {
    std::vector<Bytes> sums(2, Bytes(test.count * test.element()));
    std::vector<const void *> sources;
    const flx_op_t op = test.op == FLX_AVG ? FLX_SUM : test.op;
    for (int host = 0; host < 2; ++host) {
        flx::reduce_many(test.dtype, op, sums[host].data(), &inputs[host * near], near, test.count, 1, false);
        sources.push_back(sums[host].data());
    }
    Bytes result(sums[0].size());
    const int divisor = test.op == FLX_AVG ? ranks_ : 1;
    flx::reduce_many(test.dtype, test.op, result.data(), sources.data(), 2, test.count, divides_last ? 1 : divisor,
                     false);
    if (divides_last && divisor > 1)
        flx::divide(test.dtype, result.data(), test.count, divisor);
    return result;
}

Bytes expected_of(const Case &test, const std::vector<Bytes> &inputs, bool divides_last = false) {
    const size_t block = test.count * test.element();
    Bytes result(test.recv_count() * test.element());
    if (test.reduces()) {
        std::vector<const void *> sources;
        for (const Bytes &input : inputs)
            sources.push_back(input.data() + (test.kind == Kind::reduce_scatter_block ? rank_ * block : 0));
        if (near != 0)
            return sum_of_hosts(test, sources, divides_last);
        flx::reduce_many(test.dtype, test.op, result.data(), sources.data(), ranks_, test.count,
                         test.op == FLX_AVG ? ranks_ : 1, false);
    } else if (test.kind == Kind::bcast) {
        result = inputs[test.root];
    } else {
        for (int rank = 0; rank < ranks_; ++rank)
            std::memcpy(&result[rank * block], &inputs[rank][test.kind == Kind::alltoall ? rank_ * block : 0], block);
    }
    return result;
}

struct Buffers {
    unsigned char *send = nullptr;
    unsigned char *recv = nullptr;
    size_t bytes = 0;
    cudaStream_t stream = nullptr;
};

unsigned char *allocate(size_t bytes) {
    void *memory = nullptr;
    MUST_CUDA(cudaMalloc(&memory, bytes));
    return static_cast<unsigned char *>(memory);
}

flx_status_t call(const Case &test, const void *send, void *recv, flx_comm_t comm, cudaStream_t stream) {
    if (test.blocking) {
        switch (test.kind) {
            case Kind::allreduce:
                return flx_allreduce(send, recv, test.count, test.dtype, test.op, comm);
            case Kind::reduce_scatter_block:
                return flx_reduce_scatter_block(send, recv, test.count, test.dtype, test.op, comm);
            case Kind::allgather:
                return flx_allgather(send, recv, test.count, test.dtype, comm);
            case Kind::bcast:
                return flx_bcast(recv, test.count, test.dtype, test.root, comm);
            case Kind::reduce:
                return flx_reduce(send, recv, test.count, test.dtype, test.op, test.root, comm);
            case Kind::alltoall:
                break;
        }
    }
    switch (test.kind) {
        case Kind::allreduce:
            return flx_allreduce_on_stream(send, recv, test.count, test.dtype, test.op, comm, stream);
        case Kind::reduce_scatter_block:
            return flx_reduce_scatter_block_on_stream(send, recv, test.count, test.dtype, test.op, comm, stream);
        case Kind::allgather:
            return flx_allgather_on_stream(send, recv, test.count, test.dtype, comm, stream);
        case Kind::bcast:
            return flx_bcast_on_stream(recv, test.count, test.dtype, test.root, comm, stream);
        case Kind::reduce:
            return flx_reduce_on_stream(send, recv, test.count, test.dtype, test.op, test.root, comm, stream);
        case Kind::alltoall:
            return flx_alltoall_on_stream(send, recv, test.count, test.dtype, comm, stream);
    }
    return FLX_ERR_ARGUMENT;
}

/// Each element is as in one of both: which one is the algorithm's affair.
void compare(const Case &test, const Bytes &got, const Bytes &want, const Bytes &other, const char *setting) {
    ++checks;
    const size_t size = test.element();
    size_t at = 0;
    if (got == want)
        return;
    while (at < got.size() && (std::memcmp(&got[at], &want[at], size) == 0 ||
                               (!other.empty() && std::memcmp(&got[at], &other[at], size) == 0)))
        at += size;
    if (at == got.size())
        return;
    if (wrong++ < 5) {
        fmt::print(stderr, "rank {}: {}: {}: wrong from element {} of {}\n", rank_, setting, test.text(),
                   at / test.element(), test.recv_count());
    }
}

/// Beside copies of the program's own, which keep copy engines busy for as long as they last: what has not ended after
/// this long would not.
void await(const Buffers &buffers, const std::string &what) {
    constexpr double kPatience = 10;
    const double begin = MPI_Wtime();
    while (beside != nullptr && cudaStreamQuery(buffers.stream) == cudaErrorNotReady) {
        if (MPI_Wtime() - begin > kPatience) {
            ++wrong;
            fmt::print(stderr, "rank {}: {}: does not end beside copies\n", rank_, what);
            break;
        }
    }
    if (beside != nullptr)
        beside->stop();
    MUST_CUDA(cudaStreamSynchronize(buffers.stream));
}

void check(const Case &test, flx_comm_t comm, const Buffers &buffers, const char *setting, bool graph = false) {
    constexpr unsigned char kPoison = 0xA5;
    constexpr size_t kGuard = 64;
    std::vector<Bytes> inputs;
    for (int rank = 0; rank < ranks_; ++rank)
        inputs.push_back(input_of(test, rank, turn_of_inputs));
    ++turn_of_inputs;
    const bool receives = test.kind != Kind::reduce || rank_ == test.root;
    unsigned char *recv = buffers.recv + kGuard + test.shift;
    unsigned char *send = buffers.send + kGuard + test.shift;
    const size_t in_bytes = inputs[rank_].size();
    const size_t out_bytes = test.recv_count() * test.element();
    if (std::max(in_bytes, out_bytes) + 2 * kGuard + test.shift > buffers.bytes)
        MPI_Abort(MPI_COMM_WORLD, 4);
    const bool own_block = test.kind == Kind::allgather;
    const bool shared = test.kind == Kind::bcast || (test.shares() && receives);
    unsigned char *input = !shared ? send : own_block ? recv + rank_ * in_bytes : recv;
    const auto load = [&] {
        MUST_CUDA(cudaMemsetAsync(recv - kGuard, kPoison, out_bytes + 2 * kGuard, buffers.stream));
        if (test.kind != Kind::bcast || rank_ == test.root)
            MUST_CUDA(cudaMemcpyAsync(input, inputs[rank_].data(), in_bytes, cudaMemcpyHostToDevice, buffers.stream));
        MUST_CUDA(cudaStreamSynchronize(buffers.stream));
    };
    const void *send_argument = shared ? FLX_IN_PLACE : send;
    cudaGraph_t captured = nullptr;
    cudaGraphExec_t replay = nullptr;
    if (graph) {
        MUST_CUDA(cudaStreamBeginCapture(buffers.stream, cudaStreamCaptureModeThreadLocal));
        must(call(test, send_argument, recv, comm, buffers.stream), "captured " + test.text());
        MUST_CUDA(cudaStreamEndCapture(buffers.stream, &captured));
        MUST_CUDA(cudaGraphInstantiate(&replay, captured, 0));
    }
    const Bytes want = expected_of(test, inputs);
    const Bytes other = near != 0 && test.op == FLX_AVG && test.reduces() ? expected_of(test, inputs, true) : Bytes();
    for (int turn = 0; turn < (graph ? 4 : 1); ++turn) {
        load();
        if (beside != nullptr)
            beside->start();
        if (graph && turn % 2 == 0)
            MUST_CUDA(cudaGraphLaunch(replay, buffers.stream));
        else
            must(call(test, send_argument, recv, comm, buffers.stream), test.text());
        await(buffers, test.text());
        Bytes got(out_bytes);
        Bytes around(2 * kGuard);
        MUST_CUDA(cudaMemcpy(got.data(), recv, out_bytes, cudaMemcpyDeviceToHost));
        MUST_CUDA(cudaMemcpy(around.data(), recv - kGuard, kGuard, cudaMemcpyDeviceToHost));
        const size_t end = test.shares() && shared ? std::max(in_bytes, out_bytes) : out_bytes;
        if (end == out_bytes)
            MUST_CUDA(cudaMemcpy(around.data() + kGuard, recv + end, kGuard, cudaMemcpyDeviceToHost));
        else
            std::memset(around.data() + kGuard, kPoison, kGuard);
        if (receives)
            compare(test, got, want, other, setting);
        if (around != Bytes(2 * kGuard, kPoison) && wrong++ < 5)
            fmt::print(stderr, "rank {}: {}: {}: wrote past its buffer\n", rank_, setting, test.text());
    }
    if (graph) {
        cudaGraphExecDestroy(replay);
        cudaGraphDestroy(captured);
    }
}

/// Whether the communicator says that it has little memory of the GPU.
void check_small(flx_comm_t comm, bool small) {
    bool says_so = false;
    must(flx_report(
             comm,
             [](const char *line, void *found) {
                 *static_cast<bool *>(found) =
                     *static_cast<bool *>(found) || std::strstr(line, "(small, as other") != nullptr;
             },
             &says_so),
         "flx_report");
    ++checks;
    if (says_so != small && wrong++ < 5)
        fmt::print(stderr, "rank {}: a communicator says that its window is {}\n", rank_, says_so ? "small" : "full");
}

void check_all(flx_comm_t comm, const Buffers &buffers, const char *setting, bool every_type, bool large) {
    std::vector<Case> cases;
    const auto kinds = {Kind::allreduce, Kind::reduce_scatter_block, Kind::allgather, Kind::bcast, Kind::reduce,
                        Kind::alltoall};
    for (const Kind kind : kinds) {
        for (const size_t count : {size_t{0}, size_t{1}, size_t{3}, size_t{1001}, size_t{40'000}, size_t{262'147}}) {
            Case test{kind};
            test.count = count;
            test.root = static_cast<int>(count) % ranks_;
            cases.push_back(test);
            test.in_place = true;
            cases.push_back(test);
            test.shift = 4;
            cases.push_back(test);
            test.in_place = false;
            test.blocking = true;
            cases.push_back(test);
        }
        if (kind == Kind::bcast) {  // from rank to rank, where registered
            Case large{kind};
            large.count = 2'000'003;
            large.root = ranks_ - 1;
            cases.push_back(large);
        }
        Case bytes{kind, FLX_UINT8, FLX_MAX, 100'003};
        bytes.shift = 1;
        cases.push_back(bytes);
        Case aligned{kind, FLX_F32, FLX_SUM, 786'432};
        cases.push_back(aligned);
        aligned.in_place = true;
        cases.push_back(aligned);
        aligned.mixed = true;
        cases.push_back(aligned);
    }
    if (large) {  // in several chunks and rounds
        for (const Kind kind : {Kind::allreduce, Kind::reduce_scatter_block}) {
            Case test{kind};
            test.count = kind == Kind::allreduce ? 7'500'003 : 7'500'003 / ranks_;
            cases.push_back(test);
            test.in_place = true;
            cases.push_back(test);
            test.mixed = true;
            cases.push_back(test);
        }
    }
    for (int dtype = 0; every_type && dtype < flx::kAllDtypes; ++dtype) {
        for (int op = 0; op < flx::kOps; ++op) {
            const auto type = static_cast<flx_dtype_t>(dtype);
            if (!flx::fits(static_cast<flx_op_t>(op), type) || !flx::has_kernel(type, static_cast<flx_op_t>(op)))
                continue;
            for (const size_t count : {size_t{5}, size_t{2048}, size_t{100'001}}) {
                Case test{op % 2 == 0 ? Kind::allreduce : Kind::reduce_scatter_block, type, static_cast<flx_op_t>(op),
                          count};
                cases.push_back(test);
            }
        }
    }
    for (const Case &test : cases)
        check(test, comm, buffers, setting);
    if (on_hosts)
        return;
    for (const Kind kind : kinds) {
        for (const size_t count : {size_t{100}, size_t{300'000}}) {
            Case test{kind};
            test.count = count;
            check(test, comm, buffers, setting, true);
        }
    }
}

/// While copies between host and GPU are queued at all times, both ways.
void check_beside_copies(const Buffers &buffers) {
    setenv("FLX_PARTITION", "nvlink:.9,pcie:.1", 1);
    setenv("FLX_CUDA_ENGINES", "64K", 1);
    setenv("FLX_CUDA_SMALL", "0", 1);
    flx_comm_t comm = nullptr;
    must(flx_comm_create(MPI_COMM_WORLD, nullptr, &comm), "flx_comm_create");
    must(flx_register(comm, buffers.recv, buffers.bytes), "flx_register");
    std::string why;
    const std::unique_ptr<flx::bench::lab::Copies> copies = flx::bench::lab::Copies::make(2, why);
    if (copies == nullptr) {
        fmt::print(stderr, "rank {}: {}\n", rank_, why);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    beside = copies.get();
    const double begin = MPI_Wtime();
    for (const Kind kind :
         {Kind::allreduce, Kind::reduce_scatter_block, Kind::allgather, Kind::bcast, Kind::alltoall}) {
        Case test{kind};
        test.count = (buffers.bytes - (1U << 20)) / sizeof(float);
        if (kind != Kind::allreduce && kind != Kind::bcast)
            test.count /= ranks_;
        check(test, comm, buffers, "beside copies");
        check(test, comm, buffers, "beside copies", true);
    }
    beside = nullptr;
    if (rank_ == 0)
        fmt::print("beside copies: {} checks so far, {} wrong, {:.1f} s\n", checks, wrong, MPI_Wtime() - begin);
    must(flx_deregister(comm, buffers.recv), "flx_deregister");
    must(flx_comm_free(&comm), "flx_comm_free");
    for (const char *name : {"FLX_PARTITION", "FLX_CUDA_ENGINES", "FLX_CUDA_SMALL"})
        unsetenv(name);
}

/// What cannot be captured says so, harms neither the capture nor the communicator, and leaves nobody waiting.
void check_refused_captures(flx_comm_t comm, const Buffers &buffers) {
    auto *data = reinterpret_cast<float *>(buffers.recv);
    cudaGraph_t graph = nullptr;
    MUST_CUDA(cudaStreamBeginCapture(buffers.stream, cudaStreamCaptureModeThreadLocal));
    const flx_status_t status =
        flx_allreduce_on_stream(FLX_IN_PLACE, data, 100, FLX_F32, FLX_SUM, comm, buffers.stream);
    const std::string sentence = flx_last_error();
    MUST_CUDA(cudaStreamEndCapture(buffers.stream, &graph));
    cudaGraphDestroy(graph);
    ++checks;
    if (status != FLX_ERR_UNSUPPORTED || sentence.find("graph") == std::string::npos) {
        ++wrong;
        fmt::print(stderr, "rank {}: a capture between hosts: {}: {}\n", rank_, static_cast<int>(status), sentence);
    }
    check({Kind::allreduce, FLX_F32, FLX_SUM, 1000}, comm, buffers, "after a refused capture");
}

/// A call returns before what is on its stream is done, and its result is there for what comes later on the stream.
void check_order(flx_comm_t comm, const Buffers &buffers) {
    constexpr size_t kCount = 3'000'000;
    auto *data = reinterpret_cast<int32_t *>(buffers.recv);
    int32_t *pinned = nullptr;
    MUST_CUDA(cudaMallocHost(reinterpret_cast<void **>(&pinned), kCount * sizeof(int32_t)));
    std::fill_n(pinned, kCount, rank_ + 1);
    int32_t sum = 0;
    for (int turn = 0; turn < 3; ++turn) {  // each on what the last one left
        if (turn == 0)
            MUST_CUDA(cudaMemcpyAsync(data, pinned, kCount * sizeof(int32_t), cudaMemcpyHostToDevice, buffers.stream));
        must(flx_allreduce_on_stream(FLX_IN_PLACE, data, kCount, FLX_INT32, FLX_SUM, comm, buffers.stream), "order");
        sum = turn == 0 ? ranks_ * (ranks_ + 1) / 2 : sum * ranks_;
    }
    MUST_CUDA(cudaMemcpyAsync(pinned, data, kCount * sizeof(int32_t), cudaMemcpyDeviceToHost, buffers.stream));
    MUST_CUDA(cudaStreamSynchronize(buffers.stream));
    ++checks;
    if (std::vector<int32_t>(pinned, pinned + kCount) != std::vector<int32_t>(kCount, sum) && wrong++ < 5)
        fmt::print(stderr, "rank {}: calls in a row on a stream: wrong\n", rank_);
    cudaFreeHost(pinned);
}

/// Ranks that are told to be on several hosts: GPU memory goes through pinned host memory.
/// Others see the last call, which is over for the host once it is on its stream.
void check_seen(flx_comm_t comm, const Buffers &buffers) {
    must(flx_allreduce_on_stream(FLX_IN_PLACE, buffers.recv, 100, FLX_F32, FLX_SUM, comm, buffers.stream), "seen");
    await(buffers, "seen");
    flx::record::ProcessSeen process;
    if (ranks_ == 1 ||
        !flx::record::Reader::read(flx::record::file_of(getuid(), flx::record::this_process()), process).ok())
        return;  // /dev/shm is small
    ++checks;
    const flx::record::Latest latest = flx::record::latest_of(process);
    if (latest.call != nullptr && !latest.inside() && latest.call->carrier == flx::record::Carrier::stream &&
        latest.call->on_gpus != 0 && to_string(latest.call->what) == "allreduce of 400 B (f32, sum)")
        return;
    ++wrong;
    fmt::print("rank {}: what is seen is {}\n", rank_,
               latest.call == nullptr ? "nothing" : flx::record::describe(latest.comm->id, *latest.call));
}

int run_on_hosts(const Buffers &buffers) {
    setenv("FLX_STRICT", "1", 1);  // what is compared with adds in rank order
    for (const char *pinned : {"64M", "1M"}) {
        setenv("FLX_CUDA_PINNED", pinned, 1);
        flx_comm_t comm = nullptr;
        must(flx_comm_create(MPI_COMM_WORLD, nullptr, &comm), "flx_comm_create");
        must(flx_register(comm, buffers.recv, buffers.bytes), "flx_register");
        const double begin = MPI_Wtime();
        check_all(comm, buffers, pinned, *pinned == '6', *pinned == '6');
        check_order(comm, buffers);
        check_refused_captures(comm, buffers);
        must(flx_deregister(comm, buffers.recv), "flx_deregister");
        must(flx_comm_free(&comm), "flx_comm_free");
        if (rank_ == 0)
            fmt::print("between hosts, {} pinned: {} checks so far, {} wrong, {:.1f} s\n", pinned, checks, wrong,
                       MPI_Wtime() - begin);
        std::fflush(stdout);
    }
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank_ == 0)
        fmt::print("{} checks a rank, {} wrong over all\n", checks, wrong);
    return wrong == 0 ? 0 : 1;
}

/// Between hosts a rank carries its part of an allreduce, and no more.
void check_carried(flx_comm_t comm, const Buffers &buffers) {
    const auto carried = [comm] {
        const std::vector<flx::cuda::GpuLink> links = comm->impl->devices()->links();
        return links.at(1).bytes_sent;
    };
    constexpr size_t kCount = 1'000'003;
    const uint64_t before = carried();
    check({Kind::allreduce, FLX_F32, FLX_SUM, kCount}, comm, buffers, "bytes between hosts");
    const uint64_t bytes = carried() - before;
    const uint64_t part = kCount * sizeof(float) / near;
    const char *name = nullptr;
    must(flx_comm_device_algorithm(comm, "allreduce", kCount * sizeof(float), buffers.recv, &name), "way");
    ++checks;
    if (std::string(name) != "tiers" || bytes + 1024 < part || bytes > part + 1024) {
        ++wrong;
        fmt::print(stderr, "rank {}: an allreduce of {} bytes by {}: {} between hosts, {} expected\n", rank_,
                   kCount * sizeof(float), name, bytes, part);
    }
}

/// Two hosts of as many ranks: GPUs of one use NVLink.
int run_in_tiers(const Buffers &buffers) {
    for (const bool small : {false, true}) {
        setenv("FLX_CUDA_PINNED", small ? "1M" : "64M", 1);
        setenv("FLX_CUDA_STAGING", small ? "10M" : "256M", 1);  // the second: many pieces
        flx_comm_t comm = nullptr;
        must(flx_comm_create(MPI_COMM_WORLD, nullptr, &comm), "flx_comm_create");
        if (!small)
            must(flx_register(comm, buffers.recv, buffers.bytes), "flx_register");
        const double begin = MPI_Wtime();
        check_carried(comm, buffers);
        check_all(comm, buffers, small ? "tiers, little staging" : "tiers", !small, true);
        check_order(comm, buffers);
        check_refused_captures(comm, buffers);
        for (const std::string &line : comm->impl->devices()->report())
            if (rank_ == 0 && !small)
                fmt::print("  {}\n", line);
        if (!small)
            must(flx_deregister(comm, buffers.recv), "flx_deregister");
        must(flx_comm_free(&comm), "flx_comm_free");
        if (rank_ == 0)
            fmt::print("in tiers{}: {} checks so far, {} wrong, {:.1f} s\n", small ? ", little staging" : "", checks,
                       wrong, MPI_Wtime() - begin);
        std::fflush(stdout);
    }
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank_ == 0)
        fmt::print("{} checks a rank, {} wrong over all\n", checks, wrong);
    return wrong == 0 ? 0 : 1;
}

/// The last rank dies, stops or calls otherwise while all run collectives of `bytes`; the others must get an error that
/// says so, and nothing may stay behind on their GPUs. Prints a line for each rank that saw it so; ci/gpu-test counts
/// them.
int lose_a_rank(const std::string &how, const Buffers &buffers, size_t bytes) {
    constexpr double kPatience = 20;
    setenv("FLX_DEADLINE", "3", 1);
    flx_comm_t comm = nullptr;
    must(flx_comm_create(MPI_COMM_WORLD, nullptr, &comm), "flx_comm_create");
    must(flx_register(comm, buffers.recv, buffers.bytes), "flx_register");
    const size_t count = bytes / sizeof(float);
    const double begin = MPI_Wtime();
    const bool differs = how == "mismatch";
    flx_status_t status = FLX_SUCCESS;
    for (int turn = 0; status == FLX_SUCCESS && MPI_Wtime() - begin < kPatience; ++turn) {
        const bool late = rank_ == ranks_ - 1 && MPI_Wtime() - begin > 0.5;
        if (late && !differs)
            std::raise(how == "kill" ? SIGKILL : SIGSTOP);
        status = flx_allreduce_on_stream(buffers.send, buffers.recv, count - (late ? 1 : 0), FLX_F32, FLX_SUM, comm,
                                         buffers.stream);
        if (turn % 16 == 15)
            MUST_CUDA(cudaStreamSynchronize(buffers.stream));  // ends because kernels are told to give up
    }
    MUST_CUDA(cudaStreamSynchronize(buffers.stream));
    const std::string sentence = flx_last_error();
    const std::string why = differs ? "another collective" : fmt::format("rank {} ", ranks_ - 1);
    const bool right = status == (differs ? FLX_ERR_MISMATCH : FLX_ERR_PEER) && sentence.find(why) != std::string::npos;
    flx_comm_free(&comm);
    fmt::print("{}: rank {} after {:.1f} s: {}\n", right ? "lost" : "wrong", rank_, MPI_Wtime() - begin, sentence);
    std::fflush(stdout);
    std::_Exit(right ? 0 : 1);
}

int run(const std::vector<std::string> &given) {
    std::vector<std::string> arguments = given;
    if (!arguments.empty() && arguments[0] == "tiers")
        near = ranks_ / 2;
    on_hosts = near != 0 || (!arguments.empty() && arguments[0] == "hosts");
    if (on_hosts) {
        arguments.erase(arguments.begin());
        setenv("FLX_HOST_ID", fmt::format("host{}", near != 0 ? rank_ / near : rank_).c_str(), 1);
        setenv("FLX_CUDA_TIERS", "on", 1);
    }
    MPI_Comm host = MPI_COMM_NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    int place = 0;
    int devices = 0;
    MPI_Comm_rank(host, &place);
    MPI_Comm_free(&host);
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        if (rank_ == 0)
            fmt::print("skipped: there is no GPU\n");
        return 77;
    }
    MUST_CUDA(cudaSetDevice(place % devices));
    MUST_CUDA(cudaFree(nullptr));
    Buffers buffers;
    buffers.bytes = 32U << 20;
    buffers.send = allocate(buffers.bytes);
    buffers.recv = allocate(buffers.bytes);
    MUST_CUDA(cudaStreamCreateWithFlags(&buffers.stream, cudaStreamNonBlocking));
    const std::string only = arguments.size() == 2 && arguments[0] == "only" ? arguments[1] : "";
    if (arguments.size() == 2 && only.empty())
        return lose_a_rank(arguments[0], buffers, std::stoul(arguments[1]));
    if (on_hosts)
        return near != 0 ? run_in_tiers(buffers) : run_on_hosts(buffers);
    if (only.empty() || only == "beside copies")
        check_beside_copies(buffers);
    struct Setting {
        const char *text;
        const char *small;
        const char *engines;
        bool registered;
        bool every_type;
        const char *partition = "";
        const char *pinned = "64M";
        bool large = false;
        const char *staging = "256M";
        const char *blocks = "128";
        bool second = false;  ///< another communicator has the memory that there is
    };
    for (const Setting &setting :
         {Setting{"defaults", "256K", "64M", false, true},
          // Reductions of two go by bulk copies where windows have room for them.
          Setting{"tiles and bulk copies", "0", "64M", false, true, "", "64M", true},
          Setting{"tiles and bulk copies, registered", "0", "64M", true, false},
          Setting{"tiles and bulk copies of few blocks", "0", "64M", false, true, "", "64M", true, "256M", "2"},
          Setting{"tiles alone", "0", "64M", false, true, "", "64M", false, "16M"},
          Setting{"tiles alone, registered", "0", "64M", true, false, "", "64M", false, "16M"},
          Setting{"copy engines, registered", "0", "64K", true, false, "", "64M", true},
          Setting{"copy engines and windows that are used again", "0", "64K", true, false, "", "64M", true, "8M"},
          Setting{"lines for all that fit", "64M", "64M", true, false},
          Setting{"copy engines and a share over PCIe", "0", "64K", true, false, "nvlink:.75,pcie:.25", "128K", true},
          Setting{"all over PCIe where it can", "0", "64K", true, false, "nvlink:0,pcie:1", "8M"},
          Setting{"multiprocessors spared", "256K", "0", true, true, "", "64M", true, "256M", "0"},
          Setting{"multiprocessors spared, through windows", "256K", "0", false, false, "", "64M", true, "8M", "0"},
          Setting{"multiprocessors spared, and a share over PCIe", "0", "64K", true, false, "nvlink:.75,pcie:.25",
                  "128K", true, "256M", "0"},
          Setting{"small windows", "1M", "64M", false, true, "", "64M", true, "128M", "32", true},
          Setting{"small windows, registered", "1M", "64K", true, false, "", "64M", true, "128M", "32", true}}) {
        if (std::string(setting.text).find(only) == std::string::npos)
            continue;
        setenv("FLX_PARTITION", setting.partition, 1);
        setenv("FLX_CUDA_PINNED", setting.pinned, 1);
        setenv("FLX_CUDA_STAGING", setting.staging, 1);
        setenv("FLX_CUDA_LEAST", "4M", 1);
        setenv("FLX_CUDA_SMALL", setting.small, 1);
        setenv("FLX_CUDA_ENGINES", setting.engines, 1);
        setenv("FLX_CUDA_BLOCKS", setting.blocks, 1);
        flx_comm_t first = nullptr;
        if (setting.second)
            must(flx_comm_create(MPI_COMM_WORLD, nullptr, &first), "flx_comm_create");
        flx_comm_t comm = nullptr;
        must(flx_comm_create(MPI_COMM_WORLD, nullptr, &comm), "flx_comm_create");
        check_small(comm, setting.second);
        if (setting.registered)
            must(flx_register(comm, buffers.recv, buffers.bytes), "flx_register");
        const double begin = MPI_Wtime();
        check_all(comm, buffers, setting.text, setting.every_type, setting.large);
        check_seen(comm, buffers);
        if (rank_ == 0)
            fmt::print("{}: {} checks so far, {} wrong, {:.1f} s\n", setting.text, checks, wrong, MPI_Wtime() - begin);
        std::fflush(stdout);
        if (setting.registered)
            must(flx_deregister(comm, buffers.recv), "flx_deregister");
        must(flx_comm_free(&comm), "flx_comm_free");
        if (first != nullptr)
            must(flx_comm_free(&first), "flx_comm_free");
    }
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank_ == 0)
        fmt::print("{} checks a rank, {} wrong over all\n", checks, wrong);
    return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char **argv) {
    return flx::test::run_ranks(argc, argv, run);
}

/// Messages between GPUs under mpirun, a GPU a rank (or fewer GPUs than ranks): sends, receives, groups of them and
/// alltoallv, eager, in graphs and blocking, beside collectives, every byte checked. `mismatch`: ranks that name
/// different sizes get an error that says so. `hosts`, as the first argument: every rank is told to be on a host of its
/// own. Skips without a GPU.
#include <flx.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/mpi/device_program.h"

namespace {

using Bytes = std::vector<unsigned char>;

using flx::test::must;
using flx::test::rank_;
using flx::test::ranks_;

int64_t checks = 0;
int64_t wrong = 0;
bool on_hosts = false;  ///< ranks are told to be on hosts of their own

#define MUST(call) must((call), #call)

constexpr size_t kMost = size_t{24} << 20;
constexpr unsigned char kPoison = 0xA5;

struct Memory {
    unsigned char *send = nullptr;
    unsigned char *recv = nullptr;
    cudaStream_t stream = nullptr;
};

size_t number(int value) {
    return static_cast<size_t>(value);
}

unsigned char pattern(int from, int to, size_t i, int turn) {
    return static_cast<unsigned char>(i * 31 + i / 251 * 7 + number(from) * 91 + number(to) * 57 + number(turn) * 13);
}

/// What `from` sends to `to` lies at `at`.
struct Part {
    int peer;
    size_t bytes;
    size_t at;
};

/// How the messages of a turn are given to FLX.
enum class Form { one_by_one, group, graph, blocking, alltoallv };

size_t bytes_between(int from, int to, size_t most, int turn) {
    const size_t chosen = number(from) * 7 + number(to) * 3 + number(turn);
    return chosen % 5 == 0 ? 0 : most / (1 + chosen % 3) + chosen % 11;
}

std::vector<Part> parts(bool out, size_t most, int turn) {
    std::vector<Part> all;
    size_t at = number(turn) % 3;  // misaligned now and then
    for (int k = 0; k < ranks_; ++k) {
        const int peer = (rank_ + k) % ranks_;
        const size_t bytes = out ? bytes_between(rank_, peer, most, turn) : bytes_between(peer, rank_, most, turn);
        all.push_back({peer, bytes, at});
        at += bytes;
    }
    if (at > kMost)
        MPI_Abort(MPI_COMM_WORLD, 4);
    return all;
}

void exchange(const std::vector<Part> &out, const std::vector<Part> &in, const Memory &memory, flx_comm_t comm,
              bool blocking) {
    MUST(flx_group_begin(comm));
    for (const Part &part : out) {
        unsigned char *from = memory.send + part.at;
        MUST(blocking ? flx_send(from, part.bytes, FLX_UINT8, part.peer, comm)
                      : flx_send_on_stream(from, part.bytes, FLX_UINT8, part.peer, comm, memory.stream));
    }
    for (const Part &part : in) {
        unsigned char *to = memory.recv + part.at;
        MUST(blocking ? flx_recv(to, part.bytes, FLX_UINT8, part.peer, comm)
                      : flx_recv_on_stream(to, part.bytes, FLX_UINT8, part.peer, comm, memory.stream));
    }
    MUST(flx_group_end(comm));
}

/// A ring, each rank with the next one, which two calls one after the other would not get through.
void shift(const std::vector<Part> &out, const std::vector<Part> &in, const Memory &memory, flx_comm_t comm) {
    for (int k = 0; k < ranks_; ++k) {
        const Part &to = out[static_cast<size_t>(k)];
        const Part &from = in[static_cast<size_t>((ranks_ - k) % ranks_)];
        MUST(flx_sendrecv_on_stream(memory.send + to.at, memory.recv + from.at, to.bytes, from.bytes, FLX_UINT8,
                                    to.peer, from.peer, comm, memory.stream));
    }
}

void all_to_all(const std::vector<Part> &out, const std::vector<Part> &in, const Memory &memory, flx_comm_t comm) {
    const auto size = static_cast<size_t>(ranks_);
    std::vector<size_t> counts[2] = {std::vector<size_t>(size), std::vector<size_t>(size)};
    std::vector<size_t> places[2] = {std::vector<size_t>(size), std::vector<size_t>(size)};
    for (const auto *parts : {&out, &in})
        for (const Part &part : *parts) {
            counts[parts == &in][static_cast<size_t>(part.peer)] = part.bytes;
            places[parts == &in][static_cast<size_t>(part.peer)] = part.at;
        }
    MUST(flx_alltoallv_on_stream(memory.send, memory.recv, counts[0].data(), places[0].data(), counts[1].data(),
                                 places[1].data(), FLX_UINT8, comm, memory.stream));
}

void give(Form form, const std::vector<Part> &out, const std::vector<Part> &in, const Memory &memory, flx_comm_t comm) {
    if (form == Form::one_by_one)
        shift(out, in, memory, comm);
    else if (form == Form::alltoallv)
        all_to_all(out, in, memory, comm);
    else
        exchange(out, in, memory, comm, form == Form::blocking);
}

void load(const std::vector<Part> &out, const Memory &memory, int turn) {
    MUST(cudaStreamSynchronize(memory.stream));  // a collective may still be at these buffers
    MUST(cudaMemsetAsync(memory.recv, kPoison, kMost, memory.stream));
    for (const Part &part : out) {
        Bytes bytes(part.bytes);
        for (size_t i = 0; i < part.bytes; ++i)
            bytes[i] = pattern(rank_, part.peer, i, turn);
        MUST(cudaMemcpy(memory.send + part.at, bytes.data(), part.bytes, cudaMemcpyHostToDevice));
    }
    MUST(cudaDeviceSynchronize());  // copies of memory that is not pinned may have only begun
}

void compare(const std::vector<Part> &in, const Memory &memory, int turn, const char *what) {
    Bytes got(kMost);
    MUST(cudaStreamSynchronize(memory.stream));
    MUST(cudaMemcpy(got.data(), memory.recv, kMost, cudaMemcpyDeviceToHost));
    Bytes want(kMost, kPoison);
    for (const Part &part : in)
        for (size_t i = 0; i < part.bytes; ++i)
            want[part.at + i] = pattern(part.peer, rank_, i, turn);
    ++checks;
    if (got == want || wrong++ >= 5)
        return;
    const auto at = static_cast<size_t>(std::mismatch(got.begin(), got.end(), want.begin()).first - got.begin());
    for (const Part &part : in)
        if (at >= part.at && at < part.at + part.bytes)
            fmt::print(stderr, "rank {}: turn {}, {}: wrong from byte {} of {} from rank {}: {:#x}, not {:#x}\n", rank_,
                       turn, what, at - part.at, part.bytes, part.peer, got[at], want[at]);
}

void check(Form form, const char *what, size_t most, int turn, const Memory &memory, flx_comm_t comm) {
    const std::vector<Part> out = parts(true, most, turn);
    const std::vector<Part> in = parts(false, most, turn);
    load(out, memory, turn);
    if (form != Form::graph) {
        give(form, out, in, memory, comm);
        compare(in, memory, turn, what);
        return;
    }
    cudaGraph_t captured = nullptr;
    cudaGraphExec_t replay = nullptr;
    MUST(cudaStreamBeginCapture(memory.stream, cudaStreamCaptureModeThreadLocal));
    give(form, out, in, memory, comm);
    MUST(cudaStreamEndCapture(memory.stream, &captured));
    MUST(cudaGraphInstantiate(&replay, captured, 0));
    for (int round = 0; round < 4; ++round) {
        load(out, memory, turn);
        if (round == 2)
            give(form, out, in, memory, comm);
        else
            MUST(cudaGraphLaunch(replay, memory.stream));
        compare(in, memory, turn, what);
    }
    cudaGraphExecDestroy(replay);
    cudaGraphDestroy(captured);
}

void check_all(const Memory &memory, flx_comm_t comm, const std::vector<size_t> &sizes) {
    int turn = 0;
    for (const size_t most : sizes) {
        for (const Form form : {Form::one_by_one, Form::group, Form::graph, Form::blocking, Form::alltoallv}) {
            if (on_hosts && form == Form::graph)
                continue;
            const char *const names[] = {"one by one", "group", "graph", "blocking", "alltoallv"};
            check(form, names[static_cast<size_t>(form)], most, ++turn, memory, comm);
            MUST(flx_barrier(comm));
            if (form == Form::group)
                MUST(flx_allreduce_on_stream(FLX_IN_PLACE, memory.send, 1000, FLX_INT32, FLX_SUM, comm, memory.stream));
        }
    }
}

/// Each rank's to the next one, in one group; as many as need one kernel's parameters, and more.
void check_many(const Memory &memory, flx_comm_t comm) {
    constexpr int kTurn = 1000;
    constexpr size_t kBytes = 1'500;
    for (const size_t count : {size_t{40}, size_t{400}}) {
        const auto parts_with = [&](int peer) {
            std::vector<Part> all;
            for (size_t i = 0; i < count; ++i)
                all.push_back({peer, kBytes, 2 * kBytes * i});
            return all;
        };
        const std::vector<Part> out = parts_with((rank_ + 1) % ranks_);
        const std::vector<Part> in = parts_with((rank_ + ranks_ - 1) % ranks_);
        load(out, memory, kTurn);
        exchange(out, in, memory, comm, false);
        compare(in, memory, kTurn, "many");
        MUST(flx_barrier(comm));
    }
}

void check_errors(const Memory &memory, flx_comm_t comm) {
    const auto expect = [](bool good, const char *what) {
        ++checks;
        if (!good && wrong++ < 5)
            fmt::print(stderr, "rank {}: {}: {}\n", rank_, what, flx_last_error());
    };
    expect(flx_send_on_stream(memory.send, 8, FLX_UINT8, ranks_, comm, memory.stream) == FLX_ERR_ARGUMENT,
           "a peer that is none");
    expect(flx_send_on_stream(memory.send, 8, FLX_UINT8, rank_, comm, memory.stream) == FLX_ERR_ARGUMENT,
           "a send to oneself alone");
    if (on_hosts)  // any number goes
        return;
    MUST(flx_group_begin(comm));
    for (int i = 0; i < 1025; ++i)
        MUST(flx_send_on_stream(memory.send, 8, FLX_UINT8, (rank_ + 1) % ranks_, comm, memory.stream));
    expect(flx_group_end(comm) == FLX_ERR_UNSUPPORTED, "1025 messages");
}

/// The receiver hears it; whoever waits for it, too.
int mismatch(const Memory &memory, flx_comm_t comm) {
    flx_status_t status = FLX_SUCCESS;
    if (rank_ == 0)
        status = flx_send(memory.send, 800, FLX_UINT8, 1, comm);
    else if (rank_ == 1)
        status = flx_recv(memory.recv, 700, FLX_UINT8, 0, comm);
    const std::string sentence = flx_last_error();
    const bool right = rank_ != 1 || (status == FLX_ERR_MISMATCH && sentence.find("800 bytes") != std::string::npos &&
                                      sentence.find("700") != std::string::npos);
    if (!right)
        fmt::print(stderr, "rank {}: {}: {}\n", rank_, static_cast<int>(status), sentence);
    int all = right ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (rank_ == 0)
        fmt::print("{}\n", all == 1 ? "refused" : "wrong");
    flx_comm_free(&comm);
    return all == 1 ? 0 : 1;
}

int run(const std::vector<std::string> &given) {
    std::vector<std::string> arguments = given;
    on_hosts = !arguments.empty() && arguments[0] == "hosts";
    if (on_hosts) {
        arguments.erase(arguments.begin());
        setenv("FLX_HOST_ID", fmt::format("host{}", rank_).c_str(), 1);
    }
    const std::string mode = arguments.empty() ? "" : arguments[0];
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        if (rank_ == 0)
            fmt::print("skipped: there is no GPU\n");
        return 77;
    }
    MUST(cudaSetDevice(rank_ % devices));
    MUST(cudaFree(nullptr));
    Memory memory;
    MUST(cudaMalloc(reinterpret_cast<void **>(&memory.send), kMost));
    MUST(cudaMalloc(reinterpret_cast<void **>(&memory.recv), kMost));
    MUST(cudaStreamCreateWithFlags(&memory.stream, cudaStreamNonBlocking));
    flx_comm_t comm = nullptr;
    MUST(flx_comm_create(MPI_COMM_WORLD, nullptr, &comm));
    if (mode == "mismatch")
        return mismatch(memory, comm);
    check_errors(memory, comm);
    check_all(memory, comm, {1, 100, 9'000, 300'000, 2'800'000});
    check_many(memory, comm);
    // More than slots have room for, also straight into memory that peers have open.
    const size_t most = kMost / number(ranks_) - 64;
    check_all(memory, comm, {most});
    if (!on_hosts) {
        MUST(flx_register(comm, memory.recv, kMost));
        check_all(memory, comm, {300'000, most, most / 3});
        MUST(flx_deregister(comm, memory.recv));
    }
    MUST(flx_comm_free(&comm));
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank_ == 0)
        fmt::print("messages: {} checks a rank, {} wrong over all\n", checks, wrong);
    return wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char **argv) {
    return flx::test::run_ranks(argc, argv, run);
}

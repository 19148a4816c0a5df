/// Calls that do not match are named on every rank within FLX_DEADLINE and a second, however different the ways that
/// they go; ranks that are late are not taken for that. Several threads have cases of their own, as most of the time is
/// spent waiting. Arguments: `late` for what must not be named; `crossed` for waits on two communicators, which only a
/// program of one thread is told of; `half` leaves out every second case; `hosts` puts the two halves of the ranks on
/// two hosts.
#include <flx.h>
#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace {

using std::chrono::steady_clock;

constexpr unsigned kMostSeconds = 240;  // one that hangs ends
constexpr double kDeadlineS = 3;        // what is found takes less than half a second where the machine is not busy
constexpr int kThreads = 6;
std::atomic<int> failures{0};
int world_rank = 0;
int world_size = 1;

void failed(const std::string &what) {
    ++failures;
    fmt::print(stderr, "rank {}: {}\n", world_rank, what);
}

void expect(bool condition, const std::string &what) {
    if (!condition)
        failed(fmt::format("{}: {}", what, flx_last_error()));
}

enum class Kind {
    allreduce,
    reduce_scatter_block,
    allgather,
    bcast,
    reduce,
    barrier,
    gather,
    scatter,
    scan,
    exscan,
    alltoall,
    alltoallv,
    gatherv,
    scatterv,
    allgatherv,
    reduce_scatter
};
constexpr int kKinds = 16;
constexpr const char *kNames[kKinds] = {"allreduce",  "reduce_scatter_block",
                                        "allgather",  "bcast",
                                        "reduce",     "barrier",
                                        "gather",     "scatter",
                                        "scan",       "exscan",
                                        "alltoall",   "alltoallv",
                                        "gatherv",    "scatterv",
                                        "allgatherv", "reduce_scatter"};
enum class Form { blocking, requested, persistent };

/// One call, on a communicator and in memory of the thread's own.
struct Do {
    Kind kind = Kind::allreduce;
    size_t count = 2;  ///< elements of a rank's block
    Form form = Form::blocking;
    int root = 0;
    flx_dtype_t dtype = FLX_INT32;
    flx_op_t op = FLX_SUM;

    [[nodiscard]] std::string text() const {
        return fmt::format("{}{}({}, root {}, type {}, op {})",
                           form == Form::blocking    ? ""
                           : form == Form::requested ? "i"
                                                     : "persistent ",
                           kNames[static_cast<int>(kind)], count, root, static_cast<int>(dtype), static_cast<int>(op));
    }
};

struct Memory {
    std::vector<std::byte> in, out;
    std::vector<size_t> counts, displacements;
};

flx_status_t complete(flx_status_t status, flx_request_t &request, bool starts) {
    if (status == FLX_SUCCESS && starts)
        status = flx_start(&request);
    if (status == FLX_SUCCESS)
        status = flx_wait(&request);
    if (starts && request != FLX_REQUEST_NULL)
        flx_request_free(&request);
    return status;
}

flx_status_t call(const Do &what, flx_comm_t comm, Memory &memory) {
    const auto size = static_cast<size_t>(world_size);
    size_t element = 0;
    flx_dtype_size(what.dtype, &element);
    const size_t bytes = (what.count + size) * size * element;
    memory.in.resize(std::max(memory.in.size(), bytes));
    memory.out.resize(std::max(memory.out.size(), bytes));
    memory.counts.assign(size, what.count);
    memory.displacements.resize(size);
    if (what.kind == Kind::reduce_scatter)  // else it is a reduce_scatter_block
        memory.counts[0] = what.count + 1;
    for (size_t rank = 1; rank < size; ++rank)
        memory.displacements[rank] = memory.displacements[rank - 1] + memory.counts[rank - 1];
    const void *const in = memory.in.data();
    void *const out = memory.out.data();
    const size_t *const counts = memory.counts.data();
    const size_t *const displs = memory.displacements.data();
    const auto [kind, count, form, root, dtype, op] = what;
    flx_request_t request = FLX_REQUEST_NULL;
#define FLX_TEST_CALL(name, ...)                                                 \
    case Kind::name:                                                             \
        if (form == Form::blocking)                                              \
            return flx_##name(__VA_ARGS__);                                      \
        if (form == Form::requested)                                             \
            return complete(flx_i##name(__VA_ARGS__, &request), request, false); \
        return complete(flx_##name##_init(__VA_ARGS__, &request), request, true)
    switch (kind) {
        FLX_TEST_CALL(allreduce, in, out, count, dtype, op, comm);
        FLX_TEST_CALL(reduce_scatter_block, in, out, count, dtype, op, comm);
        FLX_TEST_CALL(allgather, in, out, count, dtype, comm);
        FLX_TEST_CALL(bcast, out, count, dtype, root, comm);
        FLX_TEST_CALL(reduce, in, out, count, dtype, op, root, comm);
        FLX_TEST_CALL(barrier, comm);
        FLX_TEST_CALL(gather, in, out, count, dtype, root, comm);
        FLX_TEST_CALL(scatter, in, out, count, dtype, root, comm);
        FLX_TEST_CALL(scan, in, out, count, dtype, op, comm);
        FLX_TEST_CALL(exscan, in, out, count, dtype, op, comm);
        FLX_TEST_CALL(alltoall, in, out, count, dtype, comm);
        FLX_TEST_CALL(alltoallv, in, out, counts, displs, counts, displs, dtype, comm);
        FLX_TEST_CALL(gatherv, in, count, out, counts, displs, dtype, root, comm);
        FLX_TEST_CALL(scatterv, in, counts, displs, out, count, dtype, root, comm);
        FLX_TEST_CALL(allgatherv, in, count, out, counts, displs, dtype, comm);
        FLX_TEST_CALL(reduce_scatter, in, out, counts, dtype, op, comm);
    }
#undef FLX_TEST_CALL
    return FLX_ERR_ARGUMENT;
}

using Program = std::function<flx_status_t(flx_comm_t comm, Memory &memory)>;

/// What one rank does and what all others do; then all meet in a barrier, as what flows one way waits for nobody.
struct Case {
    std::string name;
    Program odd;
    Program others;
    std::string instead = {};  ///< what may be said in place of the calls
};

Program does(std::vector<Do> calls) {
    return [calls = std::move(calls)](flx_comm_t comm, Memory &memory) {
        for (const Do &each : calls)
            if (const flx_status_t status = call(each, comm, memory); status != FLX_SUCCESS)
                return status;
        return FLX_SUCCESS;
    };
}

Case differ(const Do &odd, const Do &others) {
    return {fmt::format("{} against {}", odd.text(), others.text()), does({odd}), does({others})};
}

bool has_size(Kind kind) {
    return kind != Kind::barrier;
}

std::vector<Case> cases() {
    constexpr size_t kLarge = size_t{1} << 20;
    std::vector<Case> all;
    std::vector<Do> kinds(kKinds);
    for (int kind = 0; kind < kKinds; ++kind)
        kinds[static_cast<size_t>(kind)].kind = static_cast<Kind>(kind);
    for (size_t one = 0; one < kinds.size(); ++one)
        for (size_t other = one + 1; other < kinds.size(); ++other)
            all.push_back(differ(kinds[one], kinds[other]));
    for (const Do &kind : kinds) {
        Do other = kind;
        for (const Form form : {Form::requested, Form::persistent}) {
            other.form = form;
            all.push_back(differ(kind, other));
        }
        const bool pairs = kind.kind == Kind::alltoallv || kind.kind == Kind::gatherv || kind.kind == Kind::scatterv;
        if (!has_size(kind.kind) || pairs)
            continue;
        // Ways by size: boards, pages, memory that is fetched, streams.
        for (const auto &[small, large] : {std::pair<size_t, size_t>{2, 300}, {2, 40'000}, {300, kLarge}}) {
            Do one = kind;
            other = kind;
            one.count = small;
            other.count = large;
            all.push_back(all.size() % 2 == 0 ? differ(one, other) : differ(other, one));
        }
        Do one = kind;
        other = kind;
        one.count = other.count = 40'000;
        other.form = Form::requested;
        all.push_back(differ(one, other));
        other = kind;
        other.dtype = FLX_UINT32;
        // Between hosts messages are of bytes, whatever their type.
        if (kind.kind != Kind::alltoall)
            all.push_back(differ(kind, other));
    }
    for (const Kind kind : {Kind::bcast, Kind::reduce, Kind::gather, Kind::scatter, Kind::gatherv, Kind::scatterv}) {
        Do one;
        Do other;
        one.kind = other.kind = kind;
        other.root = 1;
        all.push_back(differ(one, other));
        one.count = other.count = 40'000;
        all.push_back(differ(one, other));
    }
    for (const Kind kind : {Kind::allreduce, Kind::reduce, Kind::reduce_scatter_block, Kind::scan, Kind::exscan}) {
        Do one;
        Do other;
        one.kind = other.kind = kind;
        other.op = FLX_MAX;
        all.push_back(differ(one, other));
    }
    for (const size_t count : {size_t{2}, size_t{40'000}}) {
        Do sum;
        Do from;
        sum.count = from.count = count;
        from.kind = Kind::bcast;
        all.push_back({"once more than the others, then on", does({sum, sum, from}), does({sum, from})});
        all.push_back({"one call left out", does({sum}), does({from, sum})});
        Do late = sum;
        late.form = Form::requested;
        all.push_back({"two calls in another order", does({late, from}), does({from, late})});
        const auto nothing = Do{.count = 0};
        all.push_back(differ(nothing, sum));
    }
    // A part that one side takes for empty.
    all.push_back({"gatherv of less than the root expects",
                   [](flx_comm_t comm, Memory &) {
                       int rank = 0;
                       flx_comm_rank(comm, &rank);
                       std::vector<size_t> ones(static_cast<size_t>(world_size), 1);
                       std::vector<size_t> displs(ones.size());
                       std::vector<int> values(ones.size());
                       for (size_t i = 0; i < displs.size(); ++i)
                           displs[i] = i;
                       return flx_alltoallv(values.data(), ones.data(), ones.data(), displs.data(), ones.data(),
                                            displs.data(), FLX_INT32, comm);
                   },
                   [](flx_comm_t comm, Memory &) {
                       std::vector<size_t> none(static_cast<size_t>(world_size), 0);
                       int value = 0;
                       return flx_alltoallv(&value, &value, none.data(), none.data(), none.data(), none.data(),
                                            FLX_INT32, comm);
                   },
                   " bytes are received, or called another collective"});
    const auto makes = [](bool splits) {
        return [splits](flx_comm_t comm, Memory &) {
            flx_comm_t made = nullptr;
            const flx_status_t status = splits ? flx_comm_split(comm, 0, 0, &made) : flx_comm_dup(comm, &made);
            if (made != nullptr)
                flx_comm_free(&made);
            return status;
        };
    };
    for (const bool splits : {false, true}) {
        const std::string name = splits ? "flx_comm_split" : "flx_comm_dup";
        all.push_back({name + " against allreduce", makes(splits), does({Do()})});
        Do large;
        large.count = kLarge;
        all.push_back({"large allreduce against " + name, does({large}), makes(splits)});
    }
    return all;
}

/// A communicator of a thread, and MPI's beside it.
struct Lane {
    MPI_Comm mpi_comm = MPI_COMM_NULL;
    flx_comm_t comm = nullptr;
    Memory memory;
};

void run(const Case &each, int odd, Lane &lane) {
    flx_comm_t comm = nullptr;
    expect(flx_comm_dup(lane.comm, &comm) == FLX_SUCCESS, each.name + ": dup");
    const auto began = steady_clock::now();
    const Program &mine = world_rank == odd ? each.odd : each.others;
    flx_status_t status = mine(comm, lane.memory);
    if (status == FLX_SUCCESS)
        status = flx_barrier(comm);
    const double took = std::chrono::duration<double>(steady_clock::now() - began).count();
    const std::string sentence = status == FLX_SUCCESS ? "" : flx_last_error();
    const std::string where = fmt::format("{} (rank {} is odd, {:.2f} s)", each.name, odd, took);
    if (status != FLX_ERR_MISMATCH)
        failed(fmt::format("{}: {}: {}", where, flx_strerror(status), sentence));
    else if (sentence.find("do not match: rank") == std::string::npos &&
             (each.instead.empty() || sentence.find(each.instead) == std::string::npos))
        failed(fmt::format("{}: does not say which calls: {}", where, sentence));
    else if (took > kDeadlineS + 1)
        failed(fmt::format("{}: late: {}", where, sentence));
    flx_comm_free(&comm);
    MPI_Barrier(lane.mpi_comm);
}

// ---- what must not be named

/// All ranks reduce; one comes later than three deadlines, for which it does `what`.
void late(Lane &lane, int rank, const std::function<void()> &what, const Do &how) {
    flx_comm_t comm = nullptr;
    expect(flx_comm_dup(lane.comm, &comm) == FLX_SUCCESS, "dup");
    // A root may be ahead.
    for (int i = 0; i < 5; ++i) {
        Do from;
        from.kind = Kind::bcast;
        expect(call(from, comm, lane.memory) == FLX_SUCCESS, "bcast before");
        if (world_rank == rank && i == 3)
            what();
    }
    expect(call(how, comm, lane.memory) == FLX_SUCCESS, "a call for which one rank is late: " + how.text());
    expect(flx_comm_free(&comm) == FLX_SUCCESS, "free");
}

void sleep_for(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// Two threads of each rank have a communicator each; on one rank only the first, and on the others only the second has
/// come. Nothing says that the others do not come yet.
void late_threads(Lane &a, Lane &b, double seconds) {
    const auto use = [&](Lane &lane, bool waits) {
        if (waits)
            sleep_for(seconds);
        expect(call(Do(), lane.comm, lane.memory) == FLX_SUCCESS, "calls of two threads that cross");
    };
    std::thread first([&] { use(a, world_rank != 0); });
    std::thread second([&] { use(b, world_rank == 0); });
    first.join();
    second.join();
}

void run_late(std::vector<Lane> &lanes, double deadline_s) {
    const double seconds = 3 * deadline_s;
    std::vector<std::thread> threads;
    const auto compute = [seconds] {
        const auto end = steady_clock::now() + std::chrono::duration<double>(seconds);
        for (volatile uint64_t i = 0; steady_clock::now() < end;)
            i = i + 1;
    };
    threads.emplace_back([&] {
        late(
            lanes[0], 0, [&] { sleep_for(seconds); }, Do());
    });
    threads.emplace_back([&] { late(lanes[1], 1, compute, Do{.count = 40'000}); });
    threads.emplace_back([&] {
        // In MPI, for something that a rank sends which has come.
        MPI_Comm comm = lanes[2].mpi_comm;
        const int last = world_size - 1;
        std::thread sender;
        if (world_rank == 0)
            sender = std::thread([&] {
                sleep_for(seconds);
                MPI_Send(nullptr, 0, MPI_BYTE, last, 0, comm);
            });
        late(
            lanes[2], last, [&] { MPI_Recv(nullptr, 0, MPI_BYTE, 0, 0, comm, MPI_STATUS_IGNORE); },
            Do{.kind = Kind::reduce, .form = Form::requested});
        if (sender.joinable())
            sender.join();
    });
    threads.emplace_back([&] { late_threads(lanes[3], lanes[4], seconds); });
    for (std::thread &thread : threads)
        thread.join();
}

// ---- waits on two communicators

void run_crossed(Lane &lane) {
    for (const auto &[first, second] :
         {std::pair(Do(), Do()),
          {Do{.kind = Kind::barrier}, Do{.count = 40'000}},
          {Do{.form = Form::requested}, Do{.kind = Kind::allgather}},
          {Do{.count = size_t{1} << 20}, Do{.count = 40'000, .form = Form::persistent}}}) {
        flx_comm_t a = nullptr;
        flx_comm_t b = nullptr;
        expect(flx_comm_dup(lane.comm, &a) == FLX_SUCCESS, "dup");
        expect(flx_comm_dup(lane.comm, &b) == FLX_SUCCESS, "dup");
        const bool odd = world_rank == 0;
        const auto began = steady_clock::now();
        const flx_status_t status = odd ? call(first, a, lane.memory) : call(second, b, lane.memory);
        const double took = std::chrono::duration<double>(steady_clock::now() - began).count();
        const std::string sentence = status == FLX_SUCCESS ? "" : flx_last_error();
        if (status != FLX_ERR_MISMATCH || sentence.find("cross") == std::string::npos ||
            !sentence.ends_with(" [FLX-E403]") || took > kDeadlineS + 1)
            failed(fmt::format("{} and {} cross: {} after {:.1f} s: {}", first.text(), second.text(),
                               flx_strerror(status), took, sentence));
        MPI_Barrier(MPI_COMM_WORLD);
        // What the other side has given already may do for it; what does not is no longer waited for.
        const flx_status_t other = odd ? call(second, b, lane.memory) : call(first, a, lane.memory);
        if (other != FLX_SUCCESS && other != FLX_ERR_MISMATCH && other != FLX_ERR_COMM)
            failed(fmt::format("the other communicator: {}: {}", flx_strerror(other), flx_last_error()));
        flx_comm_free(&a);
        flx_comm_free(&b);
    }
    // One that waits here has begun the call that others wait for there, or is merely late.
    flx_comm_t a = nullptr;
    flx_comm_t b = nullptr;
    expect(flx_comm_dup(lane.comm, &a) == FLX_SUCCESS, "dup");
    expect(flx_comm_dup(lane.comm, &b) == FLX_SUCCESS, "dup");
    std::vector<int> in(100'000), out(in.size());
    flx_request_t request = FLX_REQUEST_NULL;
    expect(flx_iallreduce(in.data(), out.data(), in.size(), FLX_INT32, FLX_SUM, b, &request) == FLX_SUCCESS, "issue");
    if (world_rank == world_size - 1) {
        expect(flx_wait(&request) == FLX_SUCCESS, "wait");
        sleep_for(1);
    }
    expect(call(Do(), a, lane.memory) == FLX_SUCCESS, "call beside what is under way");
    expect(flx_wait(&request) == FLX_SUCCESS, "wait");
    expect(flx_comm_free(&a) == FLX_SUCCESS, "free");
    expect(flx_comm_free(&b) == FLX_SUCCESS, "free");
}

}  // namespace

int main(int argc, char **argv) {
    constexpr int kSkipped = 77;
    alarm(kMostSeconds);
    const auto given = [&](const std::string &word) { return std::find(argv + 1, argv + argc, word) != argv + argc; };
    const bool crossed = given("crossed");
    const bool is_late = given("late");
    int level = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, crossed ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &level);
    if (!crossed && level != MPI_THREAD_MULTIPLE) {
        std::puts("skipped: this MPI does not allow several threads");
        MPI_Finalize();
        return kSkipped;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (given("hosts"))
        setenv("FLX_HOST_ID", 2 * world_rank < world_size ? "host0" : "host1", 1);
    setenv("FLX_PROBE_MS", "50", 0);
    setenv("FLX_LATE_WARNING", "1", 1);
    const double deadline_s = is_late ? 1 : kDeadlineS;
    std::vector<Lane> lanes(crossed ? 1 : kThreads + 1);
    for (Lane &lane : lanes) {
        MPI_Comm_dup(MPI_COMM_WORLD, &lane.mpi_comm);
        flx_config_t config = FLX_CONFIG_INIT;
        config.deadline_s = deadline_s;
        if (flx_comm_create(lane.mpi_comm, &config, &lane.comm) != FLX_SUCCESS) {
            failed(flx_last_error());
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    if (crossed) {
        run_crossed(lanes[0]);
    } else if (is_late) {
        run_late(lanes, deadline_s);
    } else {
        const std::vector<Case> all = cases();
        const char *const only = std::getenv("FLX_TEST_ONLY");
        const size_t step = given("half") ? 2 : 1;
        std::vector<std::thread> threads;
        for (size_t t = 0; t < kThreads; ++t)
            threads.emplace_back([&, t] {
                for (size_t i = t * step; i < all.size(); i += kThreads * step)
                    if (only == nullptr || all[i].name.find(only) != std::string::npos)
                        run(all[i], static_cast<int>(i / (kThreads * step)) % world_size, lanes[t]);
            });
        for (std::thread &thread : threads)
            thread.join();
        if (world_rank == 0)
            fmt::print("{} cases\n", (all.size() + step - 1) / step);
    }
    int mine = failures;
    int sum = 0;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (Lane &lane : lanes) {
        expect(flx_comm_free(&lane.comm) == FLX_SUCCESS, "free");
        MPI_Comm_free(&lane.mpi_comm);
    }
    MPI_Finalize();
    return sum == 0 ? 0 : 1;
}

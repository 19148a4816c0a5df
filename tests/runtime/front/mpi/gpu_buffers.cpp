/// Every collective, in all forms, on buffers in GPU memory, against what each rank works out by itself:
///   gpu_buffers [ROUNDS]        a GPU, or what stands in for one; ranks share GPUs where there are fewer
/// Buffers change between GPU and host memory from round to round, on all ranks or on some; data lie in a row or with
/// holes, in place or not. GPU_BUFFERS_ONE=1: also in what MPI does not allow and FLX takes. All of a buffer is
/// compared: what lies between the data must be what it was. Prints `right`.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/runtime/front/mpi/cuda_driver.h"
#include "tests/runtime/front/mpi/persistent.h"

namespace {

flx::test::CudaDriver cuda;
int rank = 0;
int size = 1;
int64_t checks = 0;

enum class Form { blocking, nonblocking, persistent };
constexpr const char *kForms[] = {"", "non-blocking ", "persistent "};

/// How buffers lie in a round. All of it is the same on all ranks, but for `place`, which goes by rank.
struct Round {
    int number = 0;
    Form form = Form::blocking;
    enum { all_on_gpus, host, even_ranks, sent_alone, received_alone } place = all_on_gpus;
    bool holes = false;
    bool in_place = false;
    int count = 1;  ///< elements

    [[nodiscard]] bool on_gpu(bool is_sent) const {
        switch (place) {
            case all_on_gpus:
                return true;
            case host:
                return false;
            case even_ranks:
                return rank % 2 == 0;
            case sent_alone:
                return is_sent;
            default:
                return !is_sent;
        }
    }
};

void check(int code, const char *what) {
    if (code == MPI_SUCCESS)
        return;
    std::fprintf(stderr, "rank %d: %s failed: %d\n", rank, what, code);
    MPI_Abort(MPI_COMM_WORLD, 1);
}
#define CHECK(call) check(call, #call)

/// Ints in host memory or on the GPU.
class Buffer {
  public:
    Buffer(size_t ints, bool on_gpu) : content_(ints, -1), on_gpu_(on_gpu) {
        unsigned long long made = 0;
        if (!on_gpu)
            return;
        if (cuda.allocate(&made, ints * sizeof(int)) != 0) {
            std::fprintf(stderr, "rank %d: no GPU memory\n", rank);
            MPI_Abort(MPI_COMM_WORLD, 3);
        }
        memory_ = reinterpret_cast<int *>(made);
    }
    ~Buffer() {
        if (on_gpu_)
            cuda.free(reinterpret_cast<unsigned long long>(memory_));
    }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;
    int *data() { return on_gpu_ ? memory_ : content_.data(); }
    void set(const std::vector<int> &content) {
        content_ = content;
        if (on_gpu_)
            cuda.must_copy(memory_, content_.data(), content_.size() * sizeof(int));
    }
    const std::vector<int> &get() {
        if (on_gpu_)
            cuda.must_copy(content_.data(), memory_, content_.size() * sizeof(int));
        return content_;
    }

  private:
    std::vector<int> content_;
    bool on_gpu_;
    int *memory_ = nullptr;
};

MPI_Datatype with_holes;  ///< two of three ints, from the second on

/// Elements of a round's datatype.
struct Elements {
    explicit Elements(bool holes) : type(holes ? with_holes : MPI_INT), ints(holes ? 2 : 1), extent(holes ? 3 : 1) {}
    MPI_Datatype type;
    int ints;
    int extent;
    /// Where the data of `count` elements from `first` on lie, in a buffer.
    void put(std::vector<int> &buffer, int first, int count, const std::vector<int> &values) const {
        for (int i = 0; i < count * ints; ++i) {
            const int at = (first + i / ints) * extent + (ints == 2 ? 1 : 0) + i % ints;
            buffer[static_cast<size_t>(at)] = values[static_cast<size_t>(i)];
        }
    }
    [[nodiscard]] std::vector<int> blank(int count) const {
        return std::vector<int>(static_cast<size_t>(std::max(count, 1) * extent + 2), -1);
    }
};

/// What rank `from` has for rank `to` (or for all): `count` ints.
std::vector<int> values(const Round &round, int from, int to, int count) {
    std::vector<int> all(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i)
        all[static_cast<size_t>(i)] = (from * 7919 + to * 104729 + round.number * 31 + i * 17) % 9973 + 1;
    return all;
}

/// One call: what is sent, what is received into before and after, and the call itself in its three forms.
struct Case {
    std::string name;
    std::vector<int> sent;
    std::vector<int> before;
    std::vector<int> after;
    std::function<int(int *, int *)> blocking;
    std::function<int(int *, int *, MPI_Request *)> nonblocking;
    std::function<int(int *, int *, MPI_Request *)> persistent;
};

void compare(const Round &round, const Case &test, const std::vector<int> &got) {
    ++checks;
    for (size_t i = 0; i < got.size(); ++i) {
        if (got[i] == test.after[i])
            continue;
        std::fprintf(stderr, "rank %d: round %d, %s%s, place %d%s%s, count %d: int %zu is %d and must be %d\n", rank,
                     round.number, kForms[static_cast<int>(round.form)], test.name.c_str(),
                     static_cast<int>(round.place), round.holes ? ", holes" : "", round.in_place ? ", in place" : "",
                     round.count, i, got[i], test.after[i]);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
}

void run(const Round &round, const Case &test) {
    Buffer in(test.sent.size(), round.on_gpu(true));
    Buffer out(test.before.size(), round.on_gpu(false));
    in.set(test.sent);
    out.set(test.before);
    MPI_Request request = MPI_REQUEST_NULL;
    switch (round.form) {
        case Form::blocking:
            check(test.blocking(in.data(), out.data()), test.name.c_str());
            break;
        case Form::nonblocking:
            check(test.nonblocking(in.data(), out.data(), &request), test.name.c_str());
            CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            break;
        case Form::persistent:
            check(test.persistent(in.data(), out.data(), &request), test.name.c_str());
            // At first something else is sent: what counts is what is there when it is started.
            in.set(std::vector<int>(test.sent.size(), 3));
            CHECK(MPI_Start(&request));
            CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            in.set(test.sent);
            out.set(test.before);
            CHECK(MPI_Startall(1, &request));
            CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE));
            CHECK(MPI_Request_free(&request));
    }
    compare(round, test, out.get());
    Case same = test;
    same.name += " (what was sent)";
    same.after = test.sent;
    compare(round, same, in.get());
}

#define FORMS(NAME, SMALL, ...)                                                           \
    [=](int *in, int *out) {                                                              \
        (void)in, (void)out;                                                              \
        return MPI_##NAME(__VA_ARGS__, MPI_COMM_WORLD);                                   \
    },                                                                                    \
        [=](int *in, int *out, MPI_Request *request) {                                    \
            (void)in, (void)out;                                                          \
            return MPI_I##SMALL(__VA_ARGS__, MPI_COMM_WORLD, request);                    \
        },                                                                                \
        [=](int *in, int *out, MPI_Request *request) {                                    \
            (void)in, (void)out;                                                          \
            return PERSISTENT(NAME)(__VA_ARGS__, MPI_COMM_WORLD, MPI_INFO_NULL, request); \
        }

const void *from(bool in_place, const int *in) {
    return in_place ? MPI_IN_PLACE : static_cast<const void *>(in);
}

/// Counts and displacements that differ between ranks; what `rank` sends `to` has as many as `to` has from it.
int count_between(const Round &round, int a, int b) {
    return (a * 3 + b * 3 + round.number) % 4 * round.count / 3;
}
int count_of(const Round &round, int each) {
    return (each + round.number) % 3 * round.count / 2;
}
struct Blocks {
    std::vector<int> counts;
    std::vector<int> displs;
    int total = 0;  ///< elements that all blocks lie in
    void add(int count) {
        counts.push_back(count);
        displs.push_back(total);
        total += count + static_cast<int>(counts.size()) % 2;
    }
};

void move(const Round &round) {
    const Elements of(round.holes);
    const int count = round.count;
    const int root = round.number % size;
    const bool here = rank == root;
    const MPI_Datatype type = of.type;
    const bool in_place = round.in_place;
    std::vector<int> gathered = of.blank(count * size);
    std::vector<int> exchanged = of.blank(count * size);
    std::vector<int> for_all = of.blank(count * size);
    for (int peer = 0; peer < size; ++peer) {
        of.put(gathered, peer * count, count, values(round, peer, 0, count * of.ints));
        of.put(exchanged, peer * count, count, values(round, peer, rank, count * of.ints));
        of.put(for_all, peer * count, count, values(round, rank, peer, count * of.ints));
    }
    std::vector<int> mine = of.blank(count);
    of.put(mine, 0, count, values(round, rank, 0, count * of.ints));
    std::vector<int> own = of.blank(count * size);
    of.put(own, rank * count, count, values(round, rank, 0, count * of.ints));
    const std::vector<int> nothing = of.blank(count * size);

    std::vector<int> told = of.blank(count);
    of.put(told, 0, count, values(round, root, 0, count * of.ints));
    run(round, {"bcast", {0}, here ? told : of.blank(count), told, FORMS(Bcast, bcast, out, count, type, root)});
    run(round, {"allgather", mine, in_place ? own : nothing, gathered,
                FORMS(Allgather, allgather, from(in_place, in), count, type, out, count, type)});
    const bool place_here = in_place && here;
    run(round, {"gather", mine, place_here ? own : nothing, here ? gathered : nothing,
                FORMS(Gather, gather, from(place_here, in), count, type, out, count, type, root)});
    run(round, {"alltoall", for_all, in_place ? for_all : nothing, exchanged,
                FORMS(Alltoall, alltoall, from(in_place, in), count, type, out, count, type)});
    std::vector<int> taken = of.blank(count);
    of.put(taken, 0, count, values(round, root, rank, count * of.ints));
    run(round,
        {"scatter", for_all, of.blank(count), taken, FORMS(Scatter, scatter, in, count, type, out, count, type, root)});
}

void move_blocks(const Round &round) {
    const Elements of(round.holes);
    const int root = round.number % size;
    const bool here = rank == root;
    const MPI_Datatype type = of.type;
    const bool in_place = round.in_place;
    // Static: lambdas hold the arrays by address.
    static Blocks parts, pairs;
    static std::vector<int> in_bytes;
    static std::vector<MPI_Datatype> types;
    parts = pairs = {};
    for (int peer = 0; peer < size; ++peer) {
        parts.add(count_of(round, peer));
        pairs.add(count_between(round, rank, peer));
    }
    const int *counts = parts.counts.data();
    const int *displs = parts.displs.data();
    const int own_count = counts[rank];
    std::vector<int> gathered = of.blank(parts.total);
    std::vector<int> for_all = of.blank(parts.total);
    std::vector<int> exchanged = of.blank(pairs.total);
    std::vector<int> for_pairs = of.blank(pairs.total);
    for (int peer = 0; peer < size; ++peer) {
        of.put(gathered, displs[peer], counts[peer], values(round, peer, 0, counts[peer] * of.ints));
        of.put(for_all, displs[peer], counts[peer], values(round, rank, peer, counts[peer] * of.ints));
        const int pair = pairs.counts[static_cast<size_t>(peer)];
        const int at = pairs.displs[static_cast<size_t>(peer)];
        of.put(exchanged, at, pair, values(round, peer, rank, pair * of.ints));
        of.put(for_pairs, at, pair, values(round, rank, peer, pair * of.ints));
    }
    std::vector<int> mine = of.blank(own_count);
    of.put(mine, 0, own_count, values(round, rank, 0, own_count * of.ints));
    std::vector<int> own = of.blank(parts.total);
    of.put(own, displs[rank], own_count, values(round, rank, 0, own_count * of.ints));
    const std::vector<int> nothing = of.blank(parts.total);
    const bool place_here = in_place && here;
    run(round, {"allgatherv", mine, in_place ? own : nothing, gathered,
                FORMS(Allgatherv, allgatherv, from(in_place, in), own_count, type, out, counts, displs, type)});
    run(round, {"gatherv", mine, place_here ? own : nothing, here ? gathered : nothing,
                FORMS(Gatherv, gatherv, from(place_here, in), own_count, type, out, counts, displs, type, root)});
    std::vector<int> taken = of.blank(own_count);
    of.put(taken, 0, own_count, values(round, root, rank, own_count * of.ints));
    run(round, {"scatterv", for_all, of.blank(own_count), taken,
                FORMS(Scatterv, scatterv, in, counts, displs, type, out, own_count, type, root)});
    const int *pair = pairs.counts.data();
    const int *at = pairs.displs.data();
    run(round, {"alltoallv", for_pairs, of.blank(pairs.total), exchanged,
                FORMS(Alltoallv, alltoallv, in, pair, at, type, out, pair, at, type)});
    in_bytes.clear();
    for (const int displ : pairs.displs)
        in_bytes.push_back(displ * of.extent * static_cast<int>(sizeof(int)));
    types.assign(static_cast<size_t>(size), type);
    run(round, {"alltoallw", for_pairs, of.blank(pairs.total), exchanged,
                FORMS(Alltoallw, alltoallw, in, pair, in_bytes.data(), types.data(), out, pair, in_bytes.data(),
                      types.data())});
}

/// Takes the greater of two, but for a constant that only a function of the program's would add.
void greater(void *in, void *inout, int *count, MPI_Datatype *) {
    for (int i = 0; i < *count; ++i)
        static_cast<int *>(inout)[i] = std::max(static_cast<int *>(in)[i], static_cast<int *>(inout)[i]);
}
MPI_Op of_the_program;

/// What ranks from `first` on to `last` make together.
std::vector<int> made(const Round &round, MPI_Op op, int first, int last, int ints) {
    std::vector<int> all = values(round, first, 0, ints);
    for (int peer = first + 1; peer <= last; ++peer) {
        const std::vector<int> more = values(round, peer, 0, ints);
        for (size_t i = 0; i < all.size(); ++i)
            all[i] = op == MPI_SUM ? all[i] + more[i] : std::max(all[i], more[i]);
    }
    return all;
}

void reduce(const Round &round) {
    const Elements of(false);
    const int count = round.count;
    const int root = round.number % size;
    const bool here = rank == root;
    const bool in_place = round.in_place;
    const MPI_Op op = round.number % 3 == 0 ? MPI_SUM : round.number % 3 == 1 ? MPI_MAX : of_the_program;
    std::vector<int> mine = of.blank(count * size);
    of.put(mine, 0, count * size, values(round, rank, 0, count * size));
    const std::vector<int> all = made(round, op, 0, size - 1, count * size);
    const std::vector<int> nothing = of.blank(count * size);
    // What is made comes to the front, from `first` on; the rest of the output stays.
    const auto expect = [&](const std::vector<int> &before, const std::vector<int> &result, int first, int ints) {
        std::vector<int> after = before;
        std::copy_n(result.begin() + first, ints, after.begin());
        return after;
    };
    const std::vector<int> &before = in_place ? mine : nothing;
    run(round, {"allreduce", mine, before, expect(before, all, 0, count),
                FORMS(Allreduce, allreduce, from(in_place, in), out, count, MPI_INT, op)});
    const bool place_here = in_place && here;
    const std::vector<int> &at_root = place_here ? mine : nothing;
    run(round, {"reduce", mine, at_root, here ? expect(at_root, all, 0, count) : at_root,
                FORMS(Reduce, reduce, from(place_here, in), out, count, MPI_INT, op, root)});
    const std::vector<int> until = made(round, op, 0, rank, count);
    run(round, {"scan", mine, before, expect(before, until, 0, count),
                FORMS(Scan, scan, from(in_place, in), out, count, MPI_INT, op)});
    const std::vector<int> less = rank == 0 ? std::vector<int>() : made(round, op, 0, rank - 1, count);
    run(round, {"exscan", mine, before, rank == 0 ? before : expect(before, less, 0, count),
                FORMS(Exscan, exscan, from(in_place, in), out, count, MPI_INT, op)});
    static std::vector<int> equal, uneven;
    equal.assign(static_cast<size_t>(size), count);
    uneven.assign(static_cast<size_t>(size), count);
    // The last rank gets one element, or none.
    const int given = round.number % 2 == 0 ? count - round.number / 2 % 2 : 0;
    uneven.front() += given;
    uneven.back() -= given;
    const auto scattered = [&](const std::vector<int> &counts, const char *name) {
        int first = 0;
        for (int peer = 0; peer < rank; ++peer)
            first += counts[static_cast<size_t>(peer)];
        std::vector<int> after = expect(nothing, all, first, counts[static_cast<size_t>(rank)]);
        const int *pointer = counts.data();
        run(round, {name, mine, nothing, after, FORMS(Reduce_scatter, reduce_scatter, in, out, pointer, MPI_INT, op)});
    };
    scattered(equal, "reduce_scatter");
    scattered(uneven, "reduce_scatter (uneven)");
    run(round, {"reduce_scatter_block", mine, nothing, expect(nothing, all, rank * count, count),
                FORMS(Reduce_scatter_block, reduce_scatter_block, in, out, count, MPI_INT, op)});
}

/// Calls of which ranks have just agreed that their data are on GPUs, and then are elsewhere.
void change() {
    constexpr int kSame = 5;
    for (int number = 0; number < 16; ++number) {
        Round round;
        round.number = 3000 + number;
        round.place = static_cast<decltype(round.place)>(number < kSame ? 0 : number % 5);
        round.form = number > 12 ? Form::nonblocking : Form::blocking;
        round.holes = number > 7 && number % 2 == 0;
        round.in_place = number % 3 == 2;
        round.count = round.holes ? 1000 : 2000;
        move(round);
        move_blocks(round);
        reduce(round);
    }
}

/// Two operations under way at once, each of which fills every second int of one buffer.
void interleaved() {
    constexpr int kPairs = 500;
    MPI_Datatype every_second = MPI_DATATYPE_NULL;
    CHECK(MPI_Type_vector(kPairs, 1, 2, MPI_INT, &every_second));
    CHECK(MPI_Type_commit(&every_second));
    Round round;
    round.form = Form::nonblocking;
    std::vector<int> expected(2 * kPairs);
    for (int i = 0; i < 2 * kPairs; ++i)
        expected[static_cast<size_t>(i)] = i * 3 + 1;
    Buffer buffer(2 * kPairs, true);
    if (rank == 0)
        buffer.set(expected);
    else
        buffer.set(std::vector<int>(2 * kPairs, -1));
    MPI_Request requests[2];
    CHECK(MPI_Ibcast(buffer.data(), 1, every_second, 0, MPI_COMM_WORLD, &requests[0]));
    CHECK(MPI_Ibcast(buffer.data() + 1, 1, every_second, 0, MPI_COMM_WORLD, &requests[1]));
    CHECK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    Case test;
    test.name = "interleaved bcast";
    test.after = expected;
    compare(round, test, buffer.get());
    CHECK(MPI_Type_free(&every_second));
}

/// Absolute addresses, from MPI_BOTTOM.
void absolute() {
    constexpr int kInts = 100;
    Round round;
    Buffer buffer(kInts, true);
    std::vector<int> expected(kInts, 7);
    buffer.set(rank == 0 ? expected : std::vector<int>(kInts, -1));
    MPI_Aint address = 0;
    const int length = kInts;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    CHECK(MPI_Get_address(buffer.data(), &address));
    CHECK(MPI_Type_create_hindexed(1, &length, &address, MPI_INT, &type));
    CHECK(MPI_Type_commit(&type));
    CHECK(MPI_Bcast(MPI_BOTTOM, 1, type, 0, MPI_COMM_WORLD));
    Case test;
    test.name = "bcast from MPI_BOTTOM";
    test.after = expected;
    compare(round, test, buffer.get());
    CHECK(MPI_Type_free(&type));
}

/// One buffer for what is sent and what is received, which MPI does not allow and FLX takes.
void one_buffer() {
    constexpr int kInts = 100000;  // of a size that nothing else has, and so taken to be on GPUs from the first call on
    Round round;
    round.count = kInts;
    std::vector<int> for_all;
    std::vector<int> exchanged;
    std::vector<int> gathered;
    const auto append = [](std::vector<int> &all, const std::vector<int> &more) {
        all.insert(all.end(), more.begin(), more.end());
    };
    for (int peer = 0; peer < size; ++peer) {
        append(for_all, values(round, rank, peer, kInts));
        append(exchanged, values(round, peer, rank, kInts));
        append(gathered, values(round, peer, 0, kInts));
    }
    Buffer buffer(for_all.size(), true);
    Case test;
    for (int time = 0; time < 2; ++time) {
        buffer.set(for_all);
        CHECK(MPI_Alltoall(buffer.data(), kInts, MPI_INT, buffer.data(), kInts, MPI_INT, MPI_COMM_WORLD));
        test.name = "alltoall in one buffer";
        test.after = exchanged;
        compare(round, test, buffer.get());
        buffer.set(for_all);
        CHECK(MPI_Allgather(buffer.data(), kInts, MPI_INT, buffer.data(), kInts, MPI_INT, MPI_COMM_WORLD));
        test.name = "allgather in one buffer";
        test.after = gathered;
        compare(round, test, buffer.get());
    }
}

/// What is wrong with a type is the error of the call, whatever the type's data are on.
void not_committed() {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    CHECK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    CHECK(MPI_Type_vector(2, 1, 2, MPI_INT, &type));
    Buffer buffer(3, true);
    int error_class = MPI_SUCCESS;
    MPI_Error_class(MPI_Bcast(buffer.data(), 1, type, 0, comm), &error_class);
    ++checks;
    if (error_class != MPI_ERR_TYPE)
        check(MPI_ERR_OTHER, "bcast of a type that was not committed");
    CHECK(MPI_Type_free(&type));
    CHECK(MPI_Comm_free(&comm));
}

/// A type that FLX does not reduce, and a call on a communicator of one rank: MPI's, wherever FLX is.
void not_for_flx() {
    Round round;
    constexpr int kInts = 4 * sizeof(long double) / sizeof(int);
    std::vector<long double> mine(4, rank + 1.0L);
    std::vector<long double> sum(4, size * (size + 1) / 2.0L);
    const auto ints = [](const std::vector<long double> &numbers) {
        std::vector<int> all(kInts);
        std::memcpy(all.data(), numbers.data(), kInts * sizeof(int));
        return all;
    };
    Buffer in(kInts, true);
    Buffer out(kInts, true);
    in.set(ints(mine));
    CHECK(MPI_Allreduce(in.data(), out.data(), 4, MPI_LONG_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    std::vector<long double> got(4);
    std::memcpy(got.data(), out.get().data(), kInts * sizeof(int));
    ++checks;
    if (got != sum)
        check(MPI_ERR_OTHER, "allreduce of long double");
    in.set(std::vector<int>(kInts, rank));
    CHECK(MPI_Allreduce(in.data(), out.data(), kInts, MPI_INT, MPI_SUM, MPI_COMM_SELF));
    Case test;
    test.name = "allreduce of one rank";
    test.after.assign(kInts, rank);
    compare(round, test, out.get());
}

}  // namespace

int main(int argc, char **argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 60;
    const char *local = std::getenv("OMPI_COMM_WORLD_LOCAL_RANK");
    const bool has_gpu = cuda.load() && cuda.begin(local != nullptr ? std::atoi(local) : 0);
    CHECK(MPI_Init(&argc, &argv));
    CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    CHECK(MPI_Comm_size(MPI_COMM_WORLD, &size));
    if (!has_gpu) {
        if (rank == 0)
            std::puts("skipped: there is no GPU");
        MPI_Finalize();
        return 77;
    }
    const int lengths[] = {2};
    const int displs[] = {1};
    MPI_Datatype two = MPI_DATATYPE_NULL;
    CHECK(MPI_Type_indexed(1, lengths, displs, MPI_INT, &two));
    CHECK(MPI_Type_create_resized(two, 0, 3 * sizeof(int), &with_holes));
    CHECK(MPI_Type_commit(&with_holes));
    CHECK(MPI_Op_create(greater, 1, &of_the_program));
    constexpr int kCounts[] = {1, 5, 40, 333, 5000};
    for (int number = 0; number < rounds; ++number) {
        Round round;
        round.number = number;
        // Most programs keep to one kind of memory: it changes seldom, so that ranks get used to it in between.
        round.place = static_cast<decltype(round.place)>(number / 6 % 5);
        round.form = static_cast<Form>(number % 6 < 3 ? 0 : number % 6 == 5 ? 2 : 1);
#ifdef MPICH_VERSION
        if (round.form == Form::persistent)
            round.form = Form::nonblocking;
#endif
        round.holes = number % 7 == 3;
        round.in_place = number % 4 == 2;
        round.count = kCounts[number / 2 % 5];
        move(round);
        move_blocks(round);
        reduce(round);
    }
    change();
    interleaved();
    absolute();
    not_for_flx();
    not_committed();
    if (std::getenv("GPU_BUFFERS_ONE") != nullptr)
        one_buffer();
    int64_t all = 0;
    CHECK(MPI_Reduce(&checks, &all, 1, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD));
    if (rank == 0)
        std::printf("%ld buffers compared on %d ranks\nright\n", static_cast<long>(all), size);
    CHECK(MPI_Op_free(&of_the_program));
    CHECK(MPI_Type_free(&with_holes));
    CHECK(MPI_Type_free(&two));
    MPI_Finalize();
    return 0;
}

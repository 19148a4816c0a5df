/// The random programs of tests/mpi/ahead by MPI's own interface: a program that knows nothing of FLX, which is right
/// with the drop-in library in front of MPI and, with odd seeds, without. Datatypes differ between ranks, synchronous
/// sends and one-sided operations go to ranks that wait in a collective. `--help` lists options; it says "right" in the
/// end.
#include <fmt/format.h>
#include <mpi.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string_view>

#include "tests/mpi/ahead/runner.h"
#include "tests/runtime/front/mpi/persistent.h"

namespace flx::test::ahead {
namespace {

thread_local std::array<char, MPI_MAX_ERROR_STRING> error_text;

const char *sentence(int code) {
    if (code == MPI_SUCCESS)
        return nullptr;
    int length = 0;
    MPI_Error_string(code, error_text.data(), &length);
    return error_text.data();
}

MPI_Datatype type_of(Type type) {
    switch (type) {
        case Type::u8:
            return MPI_UINT8_T;
        case Type::i16:
            return MPI_INT16_T;
        case Type::i32:
            return MPI_INT32_T;
        case Type::u64:
            return MPI_UINT64_T;
        case Type::f32:
            return MPI_FLOAT;
        default:
            return MPI_DOUBLE;
    }
}

/// The program's own: of elements that are one or several numbers of 64 bits.
void compose_all(void *in, void *inout, int *count, MPI_Datatype *type) {
    int bytes = 0;
    MPI_Type_size(*type, &bytes);
    compose(in, inout, static_cast<size_t>(*count) * static_cast<size_t>(bytes) / sizeof(uint64_t));
}

/// A buffer of `count` elements as one rank describes it: by MPI's own type or one of the program's, which is given up
/// as soon as the call was made.
struct Dressed {
    void *address;
    int count;
    MPI_Datatype type;
    bool own = false;

    static Dressed plain(const void *data, size_t count, Type type) {
        return {const_cast<void *>(data), static_cast<int>(count), type_of(type)};
    }
    /// `ragged`: lengths and places of blocks follow in elements, so that a type must be one element.
    static Dressed drawn(const void *data, size_t count, Type type, bool ragged, Random &random) {
        Dressed dressed = plain(data, count, type);
        if (data == nullptr || data == MPI_IN_PLACE || count == 0)
            return dressed;
        const int elements = ragged ? 1 : dressed.count;
        MPI_Aint at = 0;
        switch (random.below(4)) {
            case 0:
                MPI_Type_contiguous(elements, dressed.type, &dressed.type);
                break;
            case 1:
                MPI_Get_address(data, &at);
                MPI_Type_create_hindexed(1, &elements, &at, dressed.type, &dressed.type);
                dressed.address = MPI_BOTTOM;
                break;
            default:
                return dressed;
        }
        MPI_Type_commit(&dressed.type);
        dressed.own = true;
        dressed.count = ragged ? dressed.count : 1;
        return dressed;
    }
    void give_up() {
        if (own)
            MPI_Type_free(&type);
    }
};

class MpiEngine final : public Engine {
  public:
    MpiEngine(const Options &options, const std::vector<Group> &groups) {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
        MPI_Comm_size(MPI_COMM_WORLD, &size_);
        mine_ = Random(options.seed * 31 + static_cast<uint64_t>(rank_));
        MPI_Comm_dup(MPI_COMM_WORLD, &own_);
        MPI_Op_create(compose_all, 0, &compose_);
        requests_.fill(MPI_REQUEST_NULL);
        comms_.assign(groups.size(), MPI_COMM_NULL);
        for (size_t first = 0; first < groups.size();) {
            int color = MPI_UNDEFINED;
            int key = 0;
            size_t mine = first;
            size_t end = first;
            for (; end < groups.size() && groups[end].split == groups[first].split; ++end) {
                for (size_t place = 0; place < groups[end].ranks.size(); ++place) {
                    if (groups[end].ranks[place] != rank_)
                        continue;
                    mine = end;
                    color = static_cast<int>(end - first);
                    key = static_cast<int>(place);
                }
            }
            if (groups[first].split == 1) {
                MPI_Request request = MPI_REQUEST_NULL;
                MPI_Comm_idup(own_, &comms_[first], &request);
                MPI_Wait(&request, MPI_STATUS_IGNORE);
            } else {
                MPI_Comm_split(MPI_COMM_WORLD, color, key, &comms_[mine]);
            }
            first = end;
        }
        for (MPI_Comm comm : comms_) {
            if (comm == MPI_COMM_NULL)
                continue;
            MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
            // From then on FLX serves what does not block, too.
            MPI_Barrier(comm);
        }
        one_sided_ = options.threads == 1 && size_ > 1;
        if (one_sided_) {
            board_.resize(static_cast<size_t>(size_) + 1);
            MPI_Win_create(board_.data(), static_cast<MPI_Aint>(board_.size() * sizeof board_[0]), sizeof board_[0],
                           MPI_INFO_NULL, own_, &window_);
        }
    }
    ~MpiEngine() override {
        if (one_sided_)
            MPI_Win_free(&window_);
        for (MPI_Comm &comm : comms_)
            if (comm != MPI_COMM_NULL)
                MPI_Comm_free(&comm);
        MPI_Op_free(&compose_);
        MPI_Comm_free(&own_);
    }

    Sentence issue(const Call &call, size_t slot) override;
    Sentence start(size_t slot) override { return sentence(MPI_Start(&requests_[slot])); }
    Sentence free(size_t slot) override { return sentence(MPI_Request_free(&requests_[slot])); }
    Sentence wait(size_t slot) override { return sentence(MPI_Wait(&requests_[slot], MPI_STATUS_IGNORE)); }
    Sentence test(size_t slot, bool &done) override {
        int flag = 0;
        const int code = MPI_Test(&requests_[slot], &flag, MPI_STATUS_IGNORE);
        done = flag != 0;
        return sentence(code);
    }
    Sentence wait_any(int &slot) override {
        const int code = MPI_Waitany(kSlots, requests_.data(), &slot, MPI_STATUS_IGNORE);
        slot = slot == MPI_UNDEFINED ? kNone : slot;
        return sentence(code);
    }
    Sentence test_any(int &slot) override {
        int flag = 0;
        const int code = MPI_Testany(kSlots, requests_.data(), &slot, &flag, MPI_STATUS_IGNORE);
        slot = flag == 0 || slot == MPI_UNDEFINED ? kNone : slot;
        return sentence(code);
    }
    Sentence wait_all() override { return sentence(MPI_Waitall(kSlots, requests_.data(), MPI_STATUSES_IGNORE)); }
    Sentence group_begin(size_t /*group*/) override { return "MPI has no groups of calls"; }
    Sentence group_end(size_t /*group*/) override { return "MPI has no groups of calls"; }
    void *allocate(size_t bytes, bool /*shared*/) override {
        memory_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
        return memory_.back().get();
    }
    bool agree(bool right) override {
        int all = right ? 1 : 0;
        MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_LAND, own_);
        return all != 0;
    }
    Sentence finish() override;

  private:
    /// Arrays of what does not block must stay until it is done.
    const int *keep(size_t slot, const std::vector<int> &numbers) {
        kept_[slot].push_back(numbers);
        return kept_[slot].back().data();
    }
    Sentence message(const Call &call, MPI_Comm comm, size_t slot);
    /// A call that MPI refuses, of which the others know nothing.
    Sentence wrong_alone(MPI_Comm comm);
    /// Adds to another rank's count, and writes a number there and reads it again, whatever that rank waits in.
    Sentence one_sided();

    int rank_ = 0;
    int size_ = 1;
    Random mine_{0};
    MPI_Comm own_ = MPI_COMM_NULL;
    MPI_Win window_ = MPI_WIN_NULL;
    bool one_sided_ = false;
    std::vector<int64_t> board_;  ///< a count, and a number of each rank's
    int64_t added_ = 0;
    std::vector<MPI_Comm> comms_;
    std::array<MPI_Request, kSlots> requests_{};
    std::array<std::vector<std::vector<int>>, kSlots> kept_;
    std::vector<std::unique_ptr<std::byte[]>> memory_;
    MPI_Op compose_ = MPI_OP_NULL;
};

Engine::Sentence MpiEngine::one_sided() {
    const auto target = static_cast<int>(
        (static_cast<size_t>(rank_) + 1 + mine_.below(static_cast<size_t>(size_) - 1)) % static_cast<size_t>(size_));
    const int64_t one = 1;
    int64_t before = 0;
    const auto written = static_cast<int64_t>(mine_.next());
    int64_t read = 0;
    MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window_);
    MPI_Fetch_and_op(&one, &before, MPI_INT64_T, target, 0, MPI_SUM, window_);
    MPI_Win_unlock(target, window_);
    ++added_;
    MPI_Win_lock(MPI_LOCK_SHARED, target, 0, window_);
    MPI_Put(&written, 1, MPI_INT64_T, target, 1 + rank_, 1, MPI_INT64_T, window_);
    MPI_Win_flush(target, window_);
    MPI_Get(&read, 1, MPI_INT64_T, target, 1 + rank_, 1, MPI_INT64_T, window_);
    MPI_Win_unlock(target, window_);
    return read == written ? nullptr : "what was put is not what is got";
}

Engine::Sentence MpiEngine::wrong_alone(MPI_Comm comm) {
    int size = 0;
    MPI_Comm_size(comm, &size);
    std::array<int, 2> data{};
    int code = MPI_SUCCESS;
    switch (mine_.below(4)) {
        case 0:
            code = MPI_Allreduce(data.data(), &data[1], -1, MPI_INT, MPI_SUM, comm);
            break;
        case 1:
            code = MPI_Bcast(data.data(), 1, MPI_INT, size, comm);
            break;
        case 2:
            code = MPI_Allgather(data.data(), 1, MPI_DATATYPE_NULL, data.data(), 1, MPI_INT, comm);
            break;
        default:
            code = MPI_Reduce(data.data(), &data[1], 1, MPI_INT, MPI_OP_NULL, 0, comm);
            break;
    }
    return code == MPI_SUCCESS ? "a call that is wrong was not refused" : nullptr;
}

Engine::Sentence MpiEngine::finish() {
    if (!one_sided_)
        return nullptr;
    MPI_Barrier(own_);
    MPI_Win_lock(MPI_LOCK_SHARED, rank_, 0, window_);
    std::array<int64_t, 2> counts = {board_[0], added_};
    MPI_Win_unlock(rank_, window_);
    MPI_Allreduce(MPI_IN_PLACE, counts.data(), 2, MPI_INT64_T, MPI_SUM, own_);
    return counts[0] == counts[1] ? nullptr : "what ranks added one-sided is not what they find";
}

Engine::Sentence MpiEngine::message(const Call &call, MPI_Comm comm, size_t slot) {
    const Operation &what = call.what();
    const bool blocks = what.manner == Manner::blocking;
    MPI_Request *request = &requests_[slot];
    const bool sends = call.sends();
    Dressed buffer = Dressed::drawn(sends ? static_cast<const void *>(call.in()) : call.out(), what.counts[0],
                                    what.type, false, mine_);
    int code = MPI_SUCCESS;
    if (sends) {
        auto *send = mine_.below(2) == 0 ? MPI_Ssend : MPI_Send;
        auto *begin = mine_.below(2) == 0 ? MPI_Issend : MPI_Isend;
        code = blocks ? send(buffer.address, buffer.count, buffer.type, what.peer, 0, comm)
                      : begin(buffer.address, buffer.count, buffer.type, what.peer, 0, comm, request);
    } else {
        code = blocks ? MPI_Recv(buffer.address, buffer.count, buffer.type, what.root, 0, comm, MPI_STATUS_IGNORE)
                      : MPI_Irecv(buffer.address, buffer.count, buffer.type, what.root, 0, comm, request);
    }
    buffer.give_up();
    return sentence(code);
}

Engine::Sentence MpiEngine::issue(const Call &call, size_t slot) {
    constexpr size_t kSeldom = 64;
    if (one_sided_ && mine_.below(kSeldom) == 0)
        if (const Sentence why = one_sided(); why != nullptr)
            return why;
    const Operation &what = call.what();
    MPI_Comm comm = comms_[what.group];
    if (mine_.below(kSeldom) == 0)
        if (const Sentence why = wrong_alone(comm); why != nullptr)
            return why;
    kept_[slot].clear();
    const size_t count = what.counts[0];
    const int root = what.root;
    if (what.collective == Collective::message)
        return message(call, comm, slot);
    if (what.collective == Collective::shift) {
        const int to = (call.rank() + what.peer) % call.size();
        const int from = (call.rank() + call.size() - what.peer) % call.size();
        return sentence(MPI_Sendrecv(call.in(), static_cast<int>(count), type_of(what.type), to, 0, call.out(),
                                     static_cast<int>(count), type_of(what.type), from, 0, comm, MPI_STATUS_IGNORE));
    }
    const auto ints = [](const std::vector<size_t> &numbers) {
        return std::vector<int>(numbers.begin(), numbers.end());
    };
    const std::vector<int> counts = ints(call.counts());
    const std::vector<int> places = ints(call.displacements());
    const std::vector<int> counts_back = ints(call.counts_back());
    const std::vector<int> places_back = ints(call.displacements_back());
    const auto own_count = call.own_count();
    const bool reduces = ahead::reduces(what.collective);
    const bool ragged = what.collective == Collective::scatterv || what.collective == Collective::gatherv ||
                        what.collective == Collective::allgatherv || what.collective == Collective::alltoallv;
    const bool scatters = what.collective == Collective::scatter || what.collective == Collective::scatterv;
    const void *in_data = call.in_place() && !scatters ? MPI_IN_PLACE : static_cast<const void *>(call.in());
    const void *out_data = call.in_place() && scatters ? MPI_IN_PLACE : call.out();
    // Of a vector of elements that lie in a row; reductions need one type everywhere.
    Dressed in = reduces ? Dressed::plain(in_data, count, what.type)
                         : Dressed::drawn(in_data, ragged && !scatters ? own_count : count, what.type, ragged, mine_);
    Dressed out = reduces ? Dressed::plain(out_data, count, what.type)
                          : Dressed::drawn(out_data, scatters ? own_count : count, what.type, ragged, mine_);
    if (what.reduction == Reduction::compose && reduces && what.number % 2 == 0 && count % 2 == 0 &&
        what.collective != Collective::reduce_scatter) {
        MPI_Type_contiguous(2, in.type, &in.type);
        MPI_Type_commit(&in.type);
        in.own = true;
        out.type = in.type;
        in.count /= 2;
    }
    constexpr std::array kOps = {MPI_SUM, MPI_MIN, MPI_MAX, MPI_BXOR};
    const MPI_Op op = what.reduction == Reduction::compose ? compose_ : kOps[static_cast<size_t>(what.reduction)];
    const auto by = [&](auto blocking, auto non_blocking, auto init, auto... arguments) {
        int code = MPI_SUCCESS;
        if (what.manner == Manner::blocking)
            code = blocking(arguments..., comm);
        else if (what.manner == Manner::non_blocking)
            code = non_blocking(arguments..., comm, &requests_[slot]);
        else
            code = init(arguments..., comm, MPI_INFO_NULL, &requests_[slot]);
        in.give_up();
        out.give_up();
        if (code == MPI_SUCCESS && what.manner == Manner::persistent)
            code = MPI_Start(&requests_[slot]);
        return sentence(code);
    };
#define MPI_BY(Name, name, ...) by(MPI_##Name, MPI_I##name, PERSISTENT(Name) __VA_OPT__(, ) __VA_ARGS__)
    switch (what.collective) {
        case Collective::barrier:
            return MPI_BY(Barrier, barrier);
        case Collective::bcast:
            return MPI_BY(Bcast, bcast, out.address, out.count, out.type, root);
        case Collective::scatter:
            return MPI_BY(Scatter, scatter, in.address, in.count, in.type, out.address, out.count, out.type, root);
        case Collective::scatterv:
            return MPI_BY(Scatterv, scatterv, in.address, keep(slot, counts), keep(slot, places), in.type, out.address,
                          out.count, out.type, root);
        case Collective::reduce:
            return MPI_BY(Reduce, reduce, in.address, out.address, in.count, in.type, op, root);
        case Collective::gather:
            return MPI_BY(Gather, gather, in.address, in.count, in.type, out.address, out.count, out.type, root);
        case Collective::gatherv:
            return MPI_BY(Gatherv, gatherv, in.address, in.count, in.type, out.address, keep(slot, counts),
                          keep(slot, places), out.type, root);
        case Collective::scan:
            return MPI_BY(Scan, scan, in.address, out.address, in.count, in.type, op);
        case Collective::exscan:
            return MPI_BY(Exscan, exscan, in.address, out.address, in.count, in.type, op);
        case Collective::allreduce:
            return MPI_BY(Allreduce, allreduce, in.address, out.address, in.count, in.type, op);
        case Collective::reduce_scatter_block:
            return MPI_BY(Reduce_scatter_block, reduce_scatter_block, in.address, out.address, in.count, in.type, op);
        case Collective::reduce_scatter:
            return MPI_BY(Reduce_scatter, reduce_scatter, in.address, out.address, keep(slot, counts), in.type, op);
        case Collective::allgather:
            return MPI_BY(Allgather, allgather, in.address, in.count, in.type, out.address, out.count, out.type);
        case Collective::allgatherv:
            return MPI_BY(Allgatherv, allgatherv, in.address, in.count, in.type, out.address, keep(slot, counts),
                          keep(slot, places), out.type);
        case Collective::alltoall:
            return MPI_BY(Alltoall, alltoall, in.address, in.count, in.type, out.address, out.count, out.type);
        case Collective::alltoallv:
            return MPI_BY(Alltoallv, alltoallv, in.address, keep(slot, counts), keep(slot, places), in.type,
                          out.address, keep(slot, counts_back), keep(slot, places_back), out.type);
        default:
            return "no such collective";
    }
#undef MPI_BY
}

int run(int argc, char **argv) {
    int provided = MPI_THREAD_SINGLE;
    bool threads = false;
    for (int i = 1; i < argc; ++i)
        threads = threads || std::string_view(argv[i]) == "--threads";
    MPI_Init_thread(&argc, &argv, threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &provided);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    Options options;
    std::string wrong;
    int code = 2;
    if (!parse(argc, argv, options, wrong)) {
        if (rank == 0)
            std::fprintf(stderr, "%s", wrong.c_str());
    } else if (options.threads > 1 && provided != MPI_THREAD_MULTIPLE) {
        constexpr int kSkipped = 77;
        std::puts("skipped: this MPI does not allow several threads");
        code = kSkipped;
    } else {
        Choice choice;
        choice.average = false;
        choice.short_sums = false;               // Open MPI 4.1 has sums that saturate
        choice.pending = options.seed % 2 == 0;  // without the library Open MPI 4.1 crashes in some of those
#ifdef MPICH_VERSION
        choice.unsigned_extremes = false;  // MPICH 4.0 takes them for signed
        choice.pending = false;            // they are MPI's, whose persistent ones are wrong by themselves
#endif
        choice.groups = false;
        choice.messages_in_flight = true;
        code = run_threads(options, choice, [&](const std::vector<Group> &groups) -> std::unique_ptr<Engine> {
            return std::make_unique<MpiEngine>(options, groups);
        });
        if (code == 0 && rank == 0)
            std::puts("right");
    }
    MPI_Finalize();
    return code;
}

}  // namespace
}  // namespace flx::test::ahead

int main(int argc, char **argv) {
    return flx::test::ahead::run(argc, argv);
}

/// Random programs in which ranks run many operations ahead of others, by FLX's own interface: ahead/plan.h says what
/// is in them, ahead/runner.h how they are carried out. `--help` lists options.
#include <flx.h>
#include <mpi.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "tests/mpi/ahead/runner.h"

namespace flx::test::ahead {
namespace {

const char *sentence(flx_status_t status) {
    return status == FLX_SUCCESS ? nullptr : flx_last_error();
}

flx_dtype_t dtype_of(Type type) {
    constexpr std::array kDtypes = {FLX_UINT8, FLX_INT16, FLX_INT32, FLX_UINT64, FLX_F32, FLX_F64};
    return kDtypes[static_cast<size_t>(type)];
}

void compose_all(const void *in, void *inout, size_t count, flx_dtype_t /*dtype*/, void * /*arg*/) {
    compose(in, inout, count);
}

class FlxEngine final : public Engine {
  public:
    explicit FlxEngine(const std::vector<Group> &groups) {
        int world = 0;
        MPI_Comm_rank(MPI_COMM_WORLD, &world);
        MPI_Comm_dup(MPI_COMM_WORLD, &mpi_);
        why_ = sentence(flx_op_create(compose_all, nullptr, 0, &compose_));
        comms_.resize(groups.size());
        for (size_t first = 0; first < groups.size() && why_ == nullptr;) {
            int color = -1;
            int key = 0;
            size_t mine = first;
            size_t end = first;
            for (; end < groups.size() && groups[end].split == groups[first].split; ++end) {
                for (size_t place = 0; place < groups[end].ranks.size(); ++place) {
                    if (groups[end].ranks[place] != world)
                        continue;
                    mine = end;
                    color = static_cast<int>(end - first);
                    key = static_cast<int>(place);
                }
            }
            why_ = sentence(first == 0                 ? flx_comm_create(mpi_, nullptr, &comms_[0])
                            : groups[first].split == 1 ? flx_comm_dup(comms_[0], &comms_[first])
                                                       : flx_comm_split(comms_[0], color, key, &comms_[mine]));
            first = end;
        }
    }
    ~FlxEngine() override {
        for (flx_comm_t &comm : comms_)
            if (comm != nullptr)
                flx_comm_free(&comm);
        for (void *memory : shared_)
            flx_free(memory);
        flx_op_free(&compose_);
        MPI_Comm_free(&mpi_);
    }
    /// Null: all communicators were made.
    [[nodiscard]] Sentence why() const { return why_; }

    Sentence issue(const Call &call, size_t slot) override;
    Sentence start(size_t slot) override { return sentence(flx_start(&requests_[slot])); }
    Sentence free(size_t slot) override { return sentence(flx_request_free(&requests_[slot])); }
    Sentence wait(size_t slot) override { return sentence(flx_wait(&requests_[slot])); }
    Sentence test(size_t slot, bool &done) override {
        int flag = 0;
        const flx_status_t status = flx_test(&requests_[slot], &flag);
        done = flag != 0;
        return sentence(status);
    }
    Sentence wait_any(int &slot) override {
        ptrdiff_t index = kNone;
        const flx_status_t status = flx_wait_any(kSlots, requests_.data(), &index);
        slot = static_cast<int>(index);
        return sentence(status);
    }
    Sentence test_any(int &slot) override {
        ptrdiff_t index = kNone;
        int done = 0;
        const flx_status_t status = flx_test_any(kSlots, requests_.data(), &index, &done);
        slot = done != 0 ? static_cast<int>(index) : kNone;
        return sentence(status);
    }
    Sentence wait_all() override { return sentence(flx_wait_all(kSlots, requests_.data())); }
    Sentence group_begin(size_t group) override { return sentence(flx_group_begin(comms_[group])); }
    Sentence group_end(size_t group) override { return sentence(flx_group_end(comms_[group])); }
    void *allocate(size_t bytes, bool shared) override {
        void *memory = nullptr;
        if (!shared) {
            own_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
            return own_.back().get();
        }
        if (flx_malloc(bytes, &memory) != FLX_SUCCESS) {
            std::fprintf(stderr, "%s\n", flx_last_error());
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        shared_.push_back(memory);
        return memory;
    }
    bool agree(bool right) override {
        int all = right ? 1 : 0;
        MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_LAND, mpi_);
        return all != 0;
    }

  private:
    MPI_Comm mpi_ = MPI_COMM_NULL;
    std::vector<flx_comm_t> comms_;
    std::array<flx_request_t, kSlots> requests_{};
    std::vector<std::unique_ptr<std::byte[]>> own_;
    std::vector<void *> shared_;
    flx_op_t compose_ = FLX_SUM;
    Sentence why_ = nullptr;
};

Engine::Sentence FlxEngine::issue(const Call &call, size_t slot) {
    const Operation &what = call.what();
    const flx_comm_t comm = comms_[what.group];
    const void *in = call.in_place() ? FLX_IN_PLACE : static_cast<const void *>(call.in());
    void *out = call.out();
    const size_t count = what.counts[0];
    const flx_dtype_t dtype = dtype_of(what.type);
    constexpr std::array kOps = {FLX_SUM, FLX_MIN, FLX_MAX, FLX_BXOR, FLX_AVG};
    const flx_op_t op = what.reduction == Reduction::compose ? compose_ : kOps[static_cast<size_t>(what.reduction)];
    const size_t *counts = call.counts().data();
    const size_t *places = call.displacements().data();
    const auto by = [&](auto blocking, auto non_blocking, auto init, auto... arguments) {
        if (what.manner == Manner::blocking || what.manner == Manner::grouped)
            return sentence(blocking(arguments..., comm));
        if (what.manner == Manner::non_blocking)
            return sentence(non_blocking(arguments..., comm, &requests_[slot]));
        const flx_status_t status = init(arguments..., comm, &requests_[slot]);
        return sentence(status == FLX_SUCCESS ? flx_start(&requests_[slot]) : status);
    };
#define FLX_BY(name, ...) by(flx_##name, flx_i##name, flx_##name##_init __VA_OPT__(, ) __VA_ARGS__)
    switch (what.collective) {
        case Collective::barrier:
            return FLX_BY(barrier);
        case Collective::bcast:
            return FLX_BY(bcast, out, count, dtype, what.root);
        case Collective::scatter:
            return FLX_BY(scatter, call.in(), call.in_place() ? FLX_IN_PLACE : out, count, dtype, what.root);
        case Collective::scatterv:
            return FLX_BY(scatterv, call.in(), counts, places, call.in_place() ? FLX_IN_PLACE : out, call.own_count(),
                          dtype, what.root);
        case Collective::reduce:
            return FLX_BY(reduce, in, out, count, dtype, op, what.root);
        case Collective::gather:
            return FLX_BY(gather, in, out, count, dtype, what.root);
        case Collective::gatherv:
            return FLX_BY(gatherv, in, call.own_count(), out, counts, places, dtype, what.root);
        case Collective::scan:
            return FLX_BY(scan, in, out, count, dtype, op);
        case Collective::exscan:
            return FLX_BY(exscan, in, out, count, dtype, op);
        case Collective::allreduce:
            return FLX_BY(allreduce, in, out, count, dtype, op);
        case Collective::reduce_scatter_block:
            return FLX_BY(reduce_scatter_block, in, out, count, dtype, op);
        case Collective::reduce_scatter:
            return FLX_BY(reduce_scatter, in, out, counts, dtype, op);
        case Collective::allgather:
            return FLX_BY(allgather, in, out, count, dtype);
        case Collective::allgatherv:
            return FLX_BY(allgatherv, in, call.own_count(), out, counts, places, dtype);
        case Collective::alltoall:
            return FLX_BY(alltoall, in, out, count, dtype);
        case Collective::alltoallv:
            // In place the receiving side says what is sent, too.
            return FLX_BY(alltoallv, in, out, call.in_place() ? nullptr : counts, call.in_place() ? nullptr : places,
                          call.counts_back().data(), call.displacements_back().data(), dtype);
        case Collective::message: {
            // In a group a rank may send to itself.
            Sentence why = call.sends() ? sentence(flx_send(call.in(), count, dtype, what.peer, comm)) : nullptr;
            if (why == nullptr && call.receives())
                why = sentence(flx_recv(out, count, dtype, what.root, comm));
            return why;
        }
        case Collective::shift: {
            const int to = (call.rank() + what.peer) % call.size();
            const int from = (call.rank() + call.size() - what.peer) % call.size();
            return sentence(flx_sendrecv(call.in(), out, count, count, dtype, to, from, comm));
        }
    }
#undef FLX_BY
    return "no such collective";
}

int run(int argc, char **argv) {
    int provided = MPI_THREAD_SINGLE;
    // With one thread as most programs start MPI, so that FLX takes no lock.
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
        if (!options.hosts.empty()) {
            // The host of rank r stands at place 2·r.
            const size_t place = 2 * static_cast<size_t>(rank) % (options.hosts.size() + 1);
            setenv("FLX_HOST_ID", (std::string("host") + options.hosts[place]).c_str(), 1);
        }
        setenv("FLX_PROBE_MS", "100", 0);  // what is checked does not depend on rates
        code = run_threads(options, {}, [](const std::vector<Group> &groups) -> std::unique_ptr<Engine> {
            auto engine = std::make_unique<FlxEngine>(groups);
            if (engine->why() == nullptr)
                return engine;
            std::fprintf(stderr, "no communicator: %s\n", engine->why());
            MPI_Abort(MPI_COMM_WORLD, 1);
            return nullptr;
        });
    }
    MPI_Finalize();
    return code;
}

}  // namespace
}  // namespace flx::test::ahead

int main(int argc, char **argv) {
    return flx::test::ahead::run(argc, argv);
}

/// Collectives and messages of GPU memory between hosts, under mpirun without a GPU: the host part as it is, over rails
/// between ranks that are told to be on hosts of their own (or two on each of two), with streams that are host threads.
/// Every result against a serial reference, while the program calls collectives of its own. `mismatch`: ranks that call
/// differently all hear so. `kill`: the last rank dies; the others hear who it was. `tiers_...`: the same in
/// collectives among the ranks of a place.
#include <mpi.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/api/api.h"
#include "runtime/communicator/far_host.h"
#include "tests/runtime/cuda/far/host_stream.h"
#include "tests/runtime/plan/calls.h"

namespace {

using flx::Operation;
using flx::cuda::FarLanes;
using flx::cuda::FarLayout;
using flx::cuda::Message;
using flx::testing::Collective;
using flx::testing::HostStream;
using flx::testing::TestBuffers;
using flx::testing::TestCall;

int rank_ = 0;
int ranks_ = 1;
int wrong = 0;
int checks = 0;

void must(bool good, const std::string &what) {
    if (good)
        return;
    std::fprintf(stderr, "rank %d: %s\n", rank_, what.c_str());
    MPI_Abort(MPI_COMM_WORLD, 3);
}

void expect(bool good, const std::string &what) {
    ++checks;
    if (!good && wrong++ < 5)
        std::fprintf(stderr, "rank %d: wrong: %s\n", rank_, what.c_str());
}

/// The program's communicator's, as on GPUs.
class CommunicatorHealth final : public flx::cuda::Health {
  public:
    explicit CommunicatorHealth(flx_comm_t comm) : comm_(comm) {}
    flx::Status look(int awaited, bool said) override { return comm_->impl->look_at_ranks(awaited, said); }
    void progress() override {}

  private:
    flx_comm_t comm_;
};

struct Gpu {
    explicit Gpu(flx_comm_t comm, uint64_t budget, const flx::cuda::Tiers &tiers = {})
        : health(comm), layout(FarLayout::fit(ranks_, budget)), memory(layout.bytes() + 128) {
        const flx::Status status = flx::FarCommunicator::make(*comm->impl, health, tiers, host);
        must(status.ok(), status.sentence());
        must(layout.slot_bytes != 0, "too little memory");
        void *place = memory.data();
        size_t room = memory.size();
        lanes = std::make_unique<FarLanes>(*host, rank_, layout,
                                           static_cast<char *>(std::align(128, layout.bytes(), place, room)), tiers);
    }
    void close() {
        while (lanes->busy())
            std::this_thread::yield();
        lanes->stop();
        host->close();
    }
    CommunicatorHealth health;
    FarLayout layout;
    std::vector<char> memory;
    std::unique_ptr<flx::cuda::FarHost> host;
    std::unique_ptr<FarLanes> lanes;
};

TestCall random_call(std::mt19937 &random) {
    const Collective collectives[] = {Collective::allreduce, Collective::reduce_scatter_block,
                                      Collective::allgather, Collective::bcast,
                                      Collective::reduce,    Collective::alltoall};
    TestCall call;
    call.collective = collectives[random() % 6];
    const flx_dtype_t types[] = {FLX_INT8, FLX_INT64, FLX_F32, FLX_F64, FLX_F16, FLX_BF16};
    call.dtype = types[random() % 6];
    const flx_op_t ops[] = {FLX_SUM, FLX_PROD, FLX_MIN, FLX_MAX};
    call.op = ops[random() % 4];
    call.ranks = ranks_;
    call.root = static_cast<int>(random() % static_cast<unsigned>(ranks_));
    const size_t sizes[] = {0, 1, 7, 1001, 30'011, 200'003};
    call.count = sizes[random() % 6] * static_cast<size_t>(ranks_);
    call.in_place = random() % 2 == 0;
    call.seed = static_cast<uint32_t>(random());
    return call;
}

void check_collectives(flx_comm_t comm, uint64_t budget) {
    constexpr int kCalls = 60;
    Gpu gpu(comm, budget);
    HostStream streams[2];
    std::mt19937 same(5);
    std::vector<std::unique_ptr<TestBuffers>> buffers;
    std::vector<TestCall> made;
    for (int i = 0; i < kCalls; ++i) {
        const TestCall call = random_call(same);
        made.push_back(call);
        const auto &data = buffers.emplace_back(std::make_unique<TestBuffers>(call, rank_));
        const void *in = call.collective == Collective::bcast ? data->out() : data->in();
        const Operation given{call.collective, in, data->out(), call.count, call.dtype, call.op, call.root};
        const flx::Status status = gpu.lanes->enqueue(given, streams[same() % 2]);
        must(status.ok(), status.sentence());
        int32_t sum = rank_ + i;  // of the program's own, meanwhile
        must(flx_allreduce(FLX_IN_PLACE, &sum, 1, FLX_INT32, FLX_SUM, comm) == FLX_SUCCESS, flx_last_error());
        expect(sum == ranks_ * (ranks_ - 1) / 2 + ranks_ * i, "the program's own sum");
    }
    for (HostStream &stream : streams)
        stream.synchronize();
    for (size_t i = 0; i < made.size(); ++i) {
        expect(buffers[i]->result() == flx::testing::result_of(made[i], rank_), made[i].text());
        expect(buffers[i]->intact(), made[i].text() + ": wrote elsewhere");
    }
    expect(gpu.lanes->failure().ok(), gpu.lanes->failure().sentence());
    gpu.close();
}

/// Collectives among the ranks of a place, two on each host, by turns with those of all.
void check_across(flx_comm_t comm) {
    constexpr size_t kCount = 300'007;
    const flx::cuda::Tiers tiers{ranks_ / 2, 2, rank_ / 2, rank_ % 2};
    Gpu gpu(comm, uint64_t{1} << 20, tiers);
    HostStream stream;
    std::vector<int32_t> sum(kCount), mean(kCount), gathered(static_cast<size_t>(ranks_) * kCount, -1);
    const auto value = [](int rank, int turn, size_t i) {
        return static_cast<int32_t>(rank * 1000 + turn * 7 + static_cast<int>(i % 91));
    };
    for (int turn = 0; turn < 4; ++turn) {
        for (size_t i = 0; i < kCount; ++i)
            sum[i] = mean[i] = value(rank_, turn, i);
        const Operation add{Collective::allreduce, sum.data(), sum.data(), kCount, FLX_INT32, FLX_SUM, 0};
        Operation average{Collective::allreduce, mean.data(), mean.data(), kCount, FLX_INT32, FLX_AVG, 0};
        average.divisor = 7;
        const Operation gather{Collective::allgather,
                               sum.data(),
                               gathered.data() + tiers.place * kCount,
                               tiers.hosts * kCount,
                               FLX_INT32,
                               FLX_SUM,
                               0};
        for (const flx::Status &status :
             {gpu.lanes->compare(static_cast<uint64_t>(turn)), gpu.lanes->enqueue_across(average, 0, stream),
              gpu.lanes->enqueue_across(gather, 2 * kCount, stream), gpu.lanes->enqueue(add, stream)})
            must(status.ok(), status.sentence());
        stream.synchronize();
        bool right = true;
        for (size_t i = 0; i < kCount; ++i) {
            int32_t of_place = 0, of_all = 0;
            for (int rank = 0; rank < ranks_; ++rank) {
                const int32_t theirs = value(rank, turn, i);
                of_all += theirs;
                of_place += rank % 2 == tiers.place ? theirs : 0;
                const int32_t got = gathered[static_cast<size_t>(rank) * kCount + i];
                right = right && got == (rank % 2 == tiers.place ? theirs : -1);
            }
            right = right && sum[i] == of_all && mean[i] == of_place / 7;
        }
        expect(right, "collectives across hosts");
    }
    expect(gpu.lanes->failure().ok(), gpu.lanes->failure().sentence());
    gpu.close();
}

void check_messages(flx_comm_t comm) {
    constexpr int kRounds = 20;
    Gpu gpu(comm, uint64_t{2} << 20);
    const auto length = [](int from, int to, int k) {
        return 1 + static_cast<size_t>((from * 7 + to * 3 + k * 11) % 4) * (k % 2 == 0 ? 3'001 : 200'011);
    };
    const auto value = [](int from, int to, int k, size_t i) {
        return static_cast<char>(from * 31 + to * 17 + k * 7 + static_cast<int>(i % 113));
    };
    std::vector<std::unique_ptr<HostStream>> streams(2 * static_cast<size_t>(ranks_));
    std::vector<std::vector<char>> memory;
    std::vector<std::tuple<int, int, size_t>> received;
    for (int k = 0; k < kRounds; ++k)
        for (int peer = 0; peer < ranks_; ++peer)
            for (const bool sends : {true, false}) {
                if (peer == rank_)
                    continue;
                const int from = sends ? rank_ : peer;
                const int to = sends ? peer : rank_;
                auto &data = memory.emplace_back(length(from, to, k));
                for (size_t i = 0; sends && i < data.size(); ++i)
                    data[i] = value(from, to, k, i);
                if (!sends)
                    received.emplace_back(from, k, memory.size() - 1);
                const Message message{data.data(), data.size(), peer, sends};
                auto &stream = streams[FarLanes::lane_of(message)];
                if (stream == nullptr)
                    stream = std::make_unique<HostStream>();
                const flx::Status status = gpu.lanes->enqueue(message, *stream);
                must(status.ok(), status.sentence());
            }
    for (const auto &stream : streams)
        if (stream != nullptr)
            stream->synchronize();
    for (const auto &[from, k, index] : received) {
        bool right = true;
        for (size_t i = 0; i < memory[index].size(); ++i)
            right = right && memory[index][i] == value(from, rank_, k, i);
        expect(right, "a message from rank " + std::to_string(from));
    }
    expect(gpu.lanes->failure().ok(), gpu.lanes->failure().sentence());
    gpu.close();
}

/// All ranks' streams are let go, with a reason that `part` of a sentence names.
int check_failure(flx_comm_t comm, const std::string &mode) {
    using std::chrono::steady_clock;
    constexpr std::chrono::seconds kPatience(20);
    const bool kills = mode == "kill" || mode == "tiers_kill";
    const bool in_tiers = mode.starts_with("tiers");
    const flx::cuda::Tiers tiers =
        in_tiers ? flx::cuda::Tiers{ranks_ / 2, 2, rank_ / 2, rank_ % 2} : flx::cuda::Tiers();
    Gpu gpu(comm, uint64_t{1} << 20, tiers);
    HostStream stream;
    std::vector<float> data(500'000);
    const auto begin = steady_clock::now();
    for (int turn = 0; gpu.lanes->failure().ok() && steady_clock::now() - begin < kPatience; ++turn) {
        if (kills && rank_ == ranks_ - 1 && turn == 3)
            std::raise(SIGKILL);
        const size_t count = !kills && rank_ == ranks_ - 1 && turn == 3 ? 499'999 : data.size();
        const Operation call{Collective::allreduce, data.data(), data.data(), count, FLX_F32, FLX_SUM, 0};
        // In tiers ranks of another place meet neither the one that is gone nor, but in comparing, one that differs.
        if (!in_tiers)
            (void)gpu.lanes->enqueue(call, stream).ok();
        else if ((kills || gpu.lanes->compare(flx::cuda::signature_of(call)).ok()) && count == data.size())
            (void)gpu.lanes->enqueue_across(call, 0, stream).ok();
        stream.synchronize();
    }
    const flx::Status why = gpu.lanes->failure();
    const std::string last = "rank " + std::to_string(ranks_ - 1) + " ";
    const auto says = [&](const std::string &part) { return why.sentence().find(part) != std::string::npos; };
    // The pieces of a collective compare themselves; those that wait for each other compare their calls.
    const bool right = kills ? why.code() == FLX_ERR_PEER && says(last)
                             : why.code() == FLX_ERR_MISMATCH &&
                                   (says("another collective") || (says("calls do not match") && says(last)));
    std::printf("%s: rank %d: %s\n", right ? "lost" : "wrong", rank_, why.sentence().c_str());
    std::fflush(stdout);
    std::_Exit(right ? 0 : 1);
}

}  // namespace

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);  // without threads: the one that carries pieces out leaves MPI alone
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks_);
    const std::string mode = argc > 1 ? argv[1] : "apart";
    const int host = mode == "pairs" || mode.starts_with("tiers") ? rank_ / 2 : rank_;
    setenv("FLX_HOST_ID", ("host" + std::to_string(host)).c_str(), 1);
    setenv("FLX_PROBE_MS", "50", 0);
    setenv("FLX_DEADLINE", "5", 0);
    setenv("FLX_STRICT", "1", 1);  // the reference adds in rank order
    flx_comm_t comm = nullptr;
    must(flx_comm_create(MPI_COMM_WORLD, nullptr, &comm) == FLX_SUCCESS, flx_last_error());
    if (mode.ends_with("kill") || mode.ends_with("mismatch"))
        return check_failure(comm, mode);
    check_collectives(comm, uint64_t{1} << 20);
    check_collectives(comm, uint64_t{64} << 20);
    check_messages(comm);
    if (mode == "pairs")
        check_across(comm);
    must(flx_comm_free(&comm) == FLX_SUCCESS, flx_last_error());
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank_ == 0)
        std::printf("%d checks a rank, %d wrong over all\n", checks, wrong);
    MPI_Finalize();
    return wrong == 0 ? 0 : 1;
}

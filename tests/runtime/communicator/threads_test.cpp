/// Ranks as threads of one process: every collective over shared memory, with ThreadSanitizer watching. Segments are
/// mapped once per process, so that it sees both sides of each hand-over.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/communicator/communicator.h"
#include "runtime/process/progress.h"
#include "tests/runtime/link/thread_bootstrap.h"

namespace flx {
namespace {

using algorithms::Collective;
using testing::ThreadBootstrap;
using testing::ThreadGroup;

/// The value that `rank` gives for element `i`: sums are exact in all types.
int32_t value(int rank, size_t i) {
    return static_cast<int32_t>((i * 7 + 3 * rank) % 101) - 50;
}

int32_t sum(int ranks, size_t i) {
    int32_t result = 0;
    for (int rank = 0; rank < ranks; ++rank)
        result += value(rank, i);
    return result;
}

std::vector<int32_t> input(int rank, size_t count) {
    std::vector<int32_t> data(count);
    for (size_t i = 0; i < count; ++i)
        data[i] = value(rank, i);
    return data;
}

Status run(Communicator &comm, Collective collective, const void *in, void *out, size_t count, int root = 0) {
    Call call;
    Operation &operation = call.operation;
    operation.collective = collective;
    operation.in = in;
    operation.out = out;
    operation.count = count;
    operation.dtype = FLX_INT32;
    operation.op = FLX_SUM;
    operation.root = root;
    return comm.run(call);
}

#define FLX_OK(expression)                                     \
    do {                                                       \
        const Status flx_status = (expression);                \
        ASSERT_TRUE(flx_status.ok()) << flx_status.sentence(); \
    } while (false)

/// Each collective once, with `block` elements of each rank; allreduce, bcast and reduce of so many in all.
void run_all(Communicator &comm, size_t block) {
    const int rank = comm.rank(), size = comm.size();
    const size_t total = block * size;
    std::vector<int32_t> in = input(rank, total), out(total);
    FLX_OK(run(comm, Collective::allreduce, in.data(), out.data(), total));
    for (size_t i = 0; i < total; ++i)
        ASSERT_EQ(out[i], sum(size, i)) << "allreduce, element " << i;
    out = in;
    FLX_OK(run(comm, Collective::allreduce, out.data(), out.data(), total));
    for (size_t i = 0; i < total; ++i)
        ASSERT_EQ(out[i], sum(size, i)) << "allreduce in place, element " << i;

    FLX_OK(run(comm, Collective::reduce_scatter_block, in.data(), out.data(), total));
    for (size_t i = 0; i < block; ++i)
        ASSERT_EQ(out[i], sum(size, rank * block + i)) << "reduce_scatter_block, element " << i;

    FLX_OK(run(comm, Collective::allgather, in.data(), out.data(), total));
    for (size_t i = 0; i < total; ++i)
        ASSERT_EQ(out[i], value(static_cast<int>(i / block), i % block)) << "allgather, element " << i;

    for (int root = 0; root < size; ++root) {
        out = in;
        FLX_OK(run(comm, Collective::bcast, out.data(), out.data(), total, root));
        for (size_t i = 0; i < total; ++i)
            ASSERT_EQ(out[i], value(root, i)) << "bcast from " << root << ", element " << i;
        FLX_OK(run(comm, Collective::reduce, in.data(), rank == root ? out.data() : nullptr, total, root));
        for (size_t i = 0; rank == root && i < total; ++i)
            ASSERT_EQ(out[i], sum(size, i)) << "reduce to " << root << ", element " << i;
    }
    int32_t nothing[2] = {};
    FLX_OK(run(comm, Collective::barrier, &nothing[0], &nothing[1], 1));
}

void run_sizes(Communicator &comm) {
    for (const size_t block : {size_t{1}, size_t{5}, size_t{301}, size_t{30011}})
        run_all(comm, block);
}

/// Runs `body` on `ranks` threads, each of them a rank with a Process of its own.
void on_ranks(int ranks, const std::function<void(Communicator &)> &body) {
    const auto group = std::make_shared<ThreadGroup>(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            std::shared_ptr<Process> process;
            FLX_OK(Process::make(true, process));
            std::unique_ptr<Communicator> comm;
            Config config = process->config();
            FLX_OK(Communicator::make(process, std::make_unique<ThreadBootstrap>(group, rank), config, nullptr, comm));
            body(*comm);
            comm->close();
        });
    }
    for (std::thread &thread : threads)
        thread.join();
}

std::unique_ptr<Communicator> dup(Communicator &comm) {
    std::unique_ptr<Bootstrap> bootstrap;
    std::unique_ptr<Communicator> result;
    EXPECT_TRUE(comm.bootstrap().dup(bootstrap).ok());
    const Status status = Communicator::make(comm.process(), std::move(bootstrap), comm.config(), &comm, result);
    EXPECT_TRUE(status.ok()) << status.sentence();
    return result;
}

class RanksAsThreads : public ::testing::TestWithParam<int> {
  protected:
    static void SetUpTestSuite() {
        setenv("FLX_RAILS", "none", 1);
        setenv("FLX_PROBE_MS", "5", 1);
        setenv("FLX_SPIN_US", "0", 1);
        setenv("FLX_CACHE", "none", 1);
    }
};
INSTANTIATE_TEST_SUITE_P(Ranks, RanksAsThreads, ::testing::Values(1, 2, 3, 4));

TEST_P(RanksAsThreads, AllCollectives) {
    on_ranks(GetParam(), run_sizes);
}

TEST_P(RanksAsThreads, CallsCompared) {
    setenv("FLX_CHECK", "1", 1);
    on_ranks(GetParam(), [](Communicator &comm) { run_all(comm, 301); });
    unsetenv("FLX_CHECK");
}

/// Small calls that take the general path, back to back.
TEST_P(RanksAsThreads, WithoutFusedCalls) {
    setenv("FLX_FUSED_BYTES", "0", 1);
    on_ranks(GetParam(), [](Communicator &comm) {
        for (int turn = 0; turn < 10; ++turn)
            run_all(comm, 17);
    });
    unsetenv("FLX_FUSED_BYTES");
}

TEST_P(RanksAsThreads, DupAndSplit) {
    on_ranks(GetParam(), [](Communicator &comm) {
        auto twin = dup(comm);
        ASSERT_TRUE(twin);
        EXPECT_EQ(twin->rank(), comm.rank());
        EXPECT_EQ(twin->size(), comm.size());
        run_all(*twin, 301);
        run_all(comm, 301);

        std::unique_ptr<Bootstrap> bootstrap;
        FLX_OK(comm.bootstrap().split(comm.rank() % 2, -comm.rank(), bootstrap));
        std::unique_ptr<Communicator> part;
        FLX_OK(Communicator::make(comm.process(), std::move(bootstrap), comm.config(), nullptr, part));
        EXPECT_EQ(part->size(), (comm.size() + 1 - comm.rank() % 2) / 2);
        EXPECT_EQ(part->rank(), part->size() - 1 - comm.rank() / 2) << "by falling key";
        run_sizes(*part);
        part->close();
        twin->close();
    });
}

/// Different communicators may be used, made and freed by different threads at once.
TEST_P(RanksAsThreads, TwoCommunicatorsByTwoThreadsOfEachRank) {
    on_ranks(GetParam(), [](Communicator &comm) {
        auto twin = dup(comm);
        ASSERT_TRUE(twin);
        const auto work = [](Communicator &parent) {
            for (int turn = 0; turn < 3; ++turn) {
                run_all(parent, 5);
                auto child = dup(parent);
                ASSERT_TRUE(child);
                run_all(*child, 3001);
                run_all(parent, 301);
                child->close();
            }
        };
        std::thread other([&] { work(*twin); });
        work(comm);
        other.join();
        twin->close();
    });
}

/// Operations under way on four communicators; two threads of each rank wait for them in orders that differ between
/// ranks, and each moves those that the other does not wait for yet.
TEST_P(RanksAsThreads, TwoThreadsOfEachRankWaitInCrossedOrders) {
    on_ranks(GetParam(), [](Communicator &comm) {
        constexpr size_t kCount = 100'000;
        constexpr size_t kComms = 4;
        constexpr int kRounds = 3;
        std::vector<std::unique_ptr<Communicator>> comms(kComms);
        for (auto &each : comms) {
            each = dup(comm);
            ASSERT_TRUE(each);
        }
        const std::vector<int32_t> in = input(comm.rank(), kCount);
        std::vector<std::vector<int32_t>> out(kComms, std::vector<int32_t>(kCount));
        std::vector<Pending *> pending(kComms);
        const auto complete = [&](size_t which) {
            if (pending[which] == nullptr)
                return;
            bool moved = false;
            while (which % 2 != 0 && !comms[which]->completed(*pending[which], moved))
                std::this_thread::yield();
            FLX_OK(comms[which]->wait(*pending[which]));
            comms[which]->recycle(*pending[which]);
        };
        for (int round = 0; round < kRounds; ++round) {
            for (size_t which = 0; which < kComms; ++which) {
                Call call;
                call.operation = {Collective::allreduce, in.data(), out[which].data(), kCount, FLX_INT32, FLX_SUM};
                FLX_OK(comms[which]->issue(call, pending[which]));
            }
            // Ranks begin at different ends of each thread's two.
            const size_t first = static_cast<size_t>(comm.rank() + round) % 2;
            std::thread other([&] {
                complete(2 + first);
                complete(3 - first);
            });
            complete(first);
            complete(1 - first);
            other.join();
            for (const auto &result : out)
                for (size_t i = 0; i < kCount; ++i)
                    ASSERT_EQ(result[i], sum(comm.size(), i)) << "element " << i;
        }
        for (auto &each : comms)
            each->close();
    });
}

/// What a call that does not wait issues is begun by the progress thread, not by the call: while the thread is kept
/// away nothing is sent, and once it is there all is carried out though nobody calls.
TEST_P(RanksAsThreads, ProgressThreadBeginsWhatWasIssued) {
    setenv("FLX_PROGRESS_THREAD", "on", 1);
    on_ranks(GetParam(), [](Communicator &comm) {
        constexpr size_t kCount = 300'000;
        constexpr int kOperations = 3;
        const std::vector<int32_t> in = input(comm.rank(), kCount);
        std::vector<std::vector<int32_t>> out(kOperations, std::vector<int32_t>(kCount));
        std::vector<Pending *> pending(kOperations);
        const std::shared_ptr<ProgressThread> thread = ProgressThread::shared();
        const uint64_t chunks = comm.counters(0).chunks;
        thread->remove(comm);
        for (int operation = 0; operation < kOperations; ++operation) {
            Call call;
            call.operation = {Collective::allreduce, in.data(), out[operation].data(), kCount, FLX_INT32, FLX_SUM};
            FLX_OK(comm.issue(call, pending[operation]));
        }
        EXPECT_EQ(comm.counters(0).chunks, chunks) << "sent by the call";
        EXPECT_EQ(comm.busy(), comm.size() > 1);
        thread->add(comm);
        thread->wake(true);
        for (int turn = 0; comm.busy() && turn < 60'000; ++turn)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        EXPECT_FALSE(comm.busy()) << "the thread did not carry it out";
        for (int operation = 0; operation < kOperations; ++operation) {
            if (pending[operation] != nullptr) {
                FLX_OK(comm.wait(*pending[operation]));
                comm.recycle(*pending[operation]);
            }
            for (size_t i = 0; i < kCount; ++i)
                ASSERT_EQ(out[operation][i], sum(comm.size(), i)) << "operation " << operation << ", element " << i;
        }
        EXPECT_EQ(comm.counters(0).chunks > chunks, comm.size() > 1);
    });
    unsetenv("FLX_PROGRESS_THREAD");
}

}  // namespace
}  // namespace flx

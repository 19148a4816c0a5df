/// Programs that use NCCL, with the library in front of it (LD_PRELOAD) and a fake NCCL behind it: ranks are threads,
/// or all in one thread. What is moved is checked, and what went where.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "runtime/front/nccl/exports.h"
#include "tests/runtime/front/nccl/fake_device.h"

extern "C" void fake_set_device(int device);

namespace {

using Ints = std::vector<int32_t>;

void with_ranks(int ranks, const std::function<void(int)> &body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&body, rank] {
            fake_set_device(rank);
            body(rank);
        });
    for (std::thread &thread : threads)
        thread.join();
}

ncclUniqueId new_id() {
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    return id;
}

/// Each rank in a thread, with a communicator and a stream.
void with_comms(int ranks, const std::function<void(int, ncclComm_t, cudaStream_t)> &body) {
    const ncclUniqueId id = new_id();
    with_ranks(ranks, [&](int rank) {
        ncclComm_t comm = nullptr;
        ASSERT_EQ(ncclCommInitRank(&comm, ranks, id, rank), ncclSuccess);
        cudaStream_t stream = fake::make_stream();
        body(rank, comm, stream);
        EXPECT_TRUE(fake::synchronize(stream));
        EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
        fake::free_stream(stream);
    });
}

struct Notes {
    std::vector<std::string> lines = fake::take_notes();
    [[nodiscard]] long count(const std::string &begin) const {
        return std::count_if(lines.begin(), lines.end(),
                             [&](const std::string &line) { return line.starts_with(begin); });
    }
    /// Nothing that must not be.
    [[nodiscard]] bool clean() const {
        return count("mismatch") == 0 && count("two at once") == 0 && count("nobody") == 0 &&
               count("freed while") == 0 && count("aborted after") == 0;
    }
    /// Takes further ones until there are so many: what is freed later says so later.
    void await(const std::string &begin, long number) {
        constexpr int kTurns = 20'000;
        for (int turn = 0; turn < kTurns && count(begin) < number; ++turn) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            const std::vector<std::string> more = fake::take_notes();
            lines.insert(lines.end(), more.begin(), more.end());
        }
    }
};

void use(const char *how) {
    setenv("FLX_NCCL", how, 1);
    unsetenv("FLX_TEST_NCCL_FAIL");
    unsetenv("FLX_TEST_NCCL_BREAK");
    unsetenv("FLX_TEST_NCCL_CLOSED");
    unsetenv("FLX_TEST_NCCL_PATIENCE_MS");
    unsetenv("FLX_TEST_NCCL_BLIND");
    unsetenv("FLX_TEST_NCCL_LEAVES");
    unsetenv("FLX_TEST_NCCL_ROOM");
    unsetenv("FLX_TEST_NCCL_SLOW");
    unsetenv("FLX_TEST_NCCL_LITTLE");
    unsetenv("FLX_TEST_NCCL_VERSION");
    // What an earlier test left is freed later, and would be counted here.
    constexpr int kTurns = 5000;
    for (int turn = 0; turn < kTurns && fake::lanes() != 0; ++turn)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    fake::take_notes();
}

constexpr size_t kSmall = 1000;    // served, by the engine's times
constexpr size_t kLarge = 100000;  // 400 KB: left to NCCL

Ints values(int rank, size_t count) {
    Ints data(count);
    for (size_t i = 0; i < count; ++i)
        data[i] = static_cast<int32_t>(i) % 97 + 5 * rank;
    return data;
}

/// Every operation needs what the one before made, on whichever stream that was.
TEST(Program, CallsOfOneCommunicatorAreCarriedOutInTheirOrder) {
    use("auto");
    constexpr int kRanks = 4;
    constexpr int kCalls = 40;
    with_comms(kRanks, [](int rank, ncclComm_t comm, cudaStream_t stream) {
        cudaStream_t other = fake::make_stream();
        std::mt19937 random(7);  // the same on all ranks
        Ints data = values(rank, kLarge);
        Ints expected(kLarge);
        for (int one = 0; one < kRanks; ++one) {
            const Ints its = values(one, kLarge);
            for (size_t i = 0; i < kLarge; ++i)
                expected[i] += its[i];
        }
        // The first makes ranks alike; each of the others multiplies by the number of ranks.
        ASSERT_EQ(ncclAllReduce(data.data(), data.data(), kLarge, ncclInt32, ncclSum, comm, stream), ncclSuccess);
        std::vector<size_t> counts;
        for (int call = 0; call < kCalls; ++call) {
            counts.push_back(random() % 2 == 0 ? kSmall : kLarge);
            cudaStream_t on = random() % 2 == 0 ? stream : other;
            ASSERT_EQ(ncclAllReduce(data.data(), data.data(), counts.back(), ncclInt32, ncclSum, comm, on),
                      ncclSuccess);
        }
        ASSERT_TRUE(fake::synchronize(stream));
        ASSERT_TRUE(fake::synchronize(other));
        for (const size_t count : counts)
            for (size_t i = 0; i < count; ++i)
                expected[i] = static_cast<int32_t>(static_cast<uint32_t>(expected[i]) * kRanks);
        EXPECT_EQ(data, expected);
        fake::free_stream(other);
    });
    const Notes notes;
    EXPECT_TRUE(notes.clean());
    EXPECT_GT(notes.count("flx AllReduce"), kRanks * 5);
    EXPECT_GT(notes.count("nccl AllReduce"), kRanks * 5);
    EXPECT_EQ(notes.count("flx closed"), kRanks);
}

TEST(Program, EveryCollectiveGivesWhatNcclGives) {
    use("on");
    constexpr int kRanks = 3;
    with_comms(kRanks, [](int rank, ncclComm_t comm, cudaStream_t stream) {
        const size_t count = kSmall;
        const Ints in = values(rank, count * kRanks);
        Ints out(count * kRanks);
        const auto run = [&](ncclResult_t result) {
            ASSERT_EQ(result, ncclSuccess);
            ASSERT_TRUE(fake::synchronize(stream));
        };
        run(ncclAllGather(in.data(), out.data(), count, ncclInt32, comm, stream));
        for (int from = 0; from < kRanks; ++from)
            EXPECT_EQ(out[from * count + 5], values(from, count)[5]);
        run(ncclReduceScatter(in.data(), out.data(), count, ncclInt32, ncclSum, comm, stream));
        EXPECT_EQ(out[1], values(0, count * kRanks)[rank * count + 1] * kRanks + 5 * (0 + 1 + 2));
        run(ncclBroadcast(in.data(), out.data(), count, ncclInt32, 2, comm, stream));
        EXPECT_EQ(out[3], values(2, count)[3]);
        Ints same = in;
        run(ncclBcast(same.data(), count, ncclInt32, 1, comm, stream));
        EXPECT_EQ(same[3], values(1, count)[3]);
        out.assign(out.size(), -1);
        run(ncclReduce(in.data(), out.data(), count, ncclInt32, ncclSum, 1, comm, stream));
        EXPECT_EQ(out[2], rank == 1 ? 2 * kRanks + 5 * (0 + 1 + 2) : -1);
        run(ncclAlltoAll(in.data(), out.data(), count, ncclInt32, comm, stream));
        EXPECT_EQ(out[2 * count + 1], values(2, count * kRanks)[rank * count + 1]);
    });
    const Notes notes;
    EXPECT_TRUE(notes.clean());
    EXPECT_EQ(notes.count("flx "), kRanks * 6 + 2 * kRanks);  // with what is said at the end
    EXPECT_EQ(notes.count("nccl "), kRanks);                  // destroyed
}

/// Large ones are NCCL's, whose all-to-all calls functions that are taken over.
TEST(Program, WhatNcclCallsItselfGoesStraightToIt) {
    use("auto");
    constexpr int kRanks = 3;
    with_comms(kRanks, [](int rank, ncclComm_t comm, cudaStream_t stream) {
        const Ints in = values(rank, kLarge * kRanks);
        Ints out(kLarge * kRanks);
        Ints same = in;
        ASSERT_EQ(ncclAlltoAll(in.data(), out.data(), kLarge, ncclInt32, comm, stream), ncclSuccess);
        ASSERT_EQ(ncclBcast(same.data(), kLarge, ncclInt32, 1, comm, stream), ncclSuccess);
        ASSERT_TRUE(fake::synchronize(stream));
        EXPECT_EQ(out[2 * kLarge + 1], values(2, kLarge * kRanks)[rank * kLarge + 1]);
        EXPECT_EQ(same[3], values(1, kLarge)[3]);
    });
    const Notes notes;
    EXPECT_TRUE(notes.clean());
    EXPECT_GE(notes.count("nccl Send"), kRanks * kRanks);
}

TEST(Program, WhatFlxLacksGoesToNccl) {
    use("on");
    with_comms(2, [](int, ncclComm_t comm, cudaStream_t stream) {
        Ints data(kSmall);
        ncclRedOp_t own = ncclSum;
        ASSERT_EQ(ncclRedOpCreatePreMulSum(&own, nullptr, ncclInt32, ncclScalarDevice, comm), ncclSuccess);
        EXPECT_EQ(ncclAllReduce(data.data(), data.data(), kSmall, ncclInt32, own, comm, stream), ncclSuccess);
        EXPECT_EQ(ncclAllReduce(data.data(), data.data(), 0, ncclInt32, ncclSum, comm, stream), ncclSuccess);
        // Bytes of any type can be moved.
        EXPECT_EQ(ncclAllGather(data.data(), data.data(), 8, ncclFloat8e5m2, comm, stream), ncclSuccess);
        // A version behind that lacks a function.
        const auto gather = reinterpret_cast<decltype(&ncclGather)>(dlsym(RTLD_DEFAULT, "ncclGather"));
        ASSERT_NE(gather, nullptr);
        EXPECT_EQ(gather(data.data(), data.data(), 8, ncclInt32, 0, comm, stream), ncclInvalidUsage);
        EXPECT_NE(std::string(ncclGetLastError(comm)).find("ncclGather is called, which"), std::string::npos);
        ASSERT_TRUE(fake::synchronize(stream));
    });
    const Notes notes;
    EXPECT_TRUE(notes.clean());
    EXPECT_EQ(notes.count("nccl AllReduce"), 4);
    EXPECT_EQ(notes.count("flx AllGather"), 2);
}

constexpr size_t kHuge = 1500000;  // 6 MB: ranks show each other their outputs

TEST(Program, ReductionsOfItsOwnAreNcclsAtAnySize) {
    use("on");
    with_comms(2, [](int, ncclComm_t comm, cudaStream_t stream) {
        Ints data(kHuge);
        ncclRedOp_t own = ncclSum;
        ASSERT_EQ(ncclRedOpCreatePreMulSum(&own, nullptr, ncclInt32, ncclScalarDevice, comm), ncclSuccess);
        EXPECT_EQ(ncclAllReduce(data.data(), data.data(), kHuge, ncclInt32, own, comm, stream), ncclSuccess);
        ASSERT_EQ(ncclGroupStart(), ncclSuccess);
        EXPECT_EQ(ncclAllReduce(data.data(), data.data(), kHuge, ncclInt32, own, comm, stream), ncclSuccess);
        ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
        ASSERT_TRUE(fake::synchronize(stream));
    });
    const Notes notes;
    EXPECT_TRUE(notes.clean());
    EXPECT_EQ(notes.count("nccl AllReduce"), 4);
}

/// Calls into three outputs in turn.
void gather_much(const std::function<void(int)> &before = {}) {
    with_comms(3, [&](int rank, ncclComm_t comm, cudaStream_t stream) {
        constexpr size_t kBlock = kHuge / 3;
        const Ints in = values(rank, kBlock);
        std::vector<Ints> outs(3, Ints(kHuge));
        for (int turn = 0; turn < 6; ++turn) {
            if (before)
                before(rank);
            Ints &out = outs[static_cast<size_t>(turn) % 3];
            ASSERT_EQ(ncclAllGather(in.data(), out.data(), kBlock, ncclInt32, comm, stream), ncclSuccess);
            ASSERT_TRUE(fake::synchronize(stream));
            for (int from = 0; from < 3; ++from)
                ASSERT_EQ(out[from * kBlock + 7], values(from, kBlock)[7]);
        }
    });
}

TEST(Program, LargeCallsWriteStraightIntoOutputsThatRanksShowEachOther) {
    use("on");
    gather_much();
    const Notes notes;
    EXPECT_TRUE(notes.clean());
    EXPECT_EQ(notes.count("flx met AllGather"), 3 * 6);
    EXPECT_EQ(notes.count("opens"), 3 * 2 * 3);  // each output once, at each peer
}

/// Of gather_much(): each call went through slots, and `opens` was noted so many times.
void expect_slots(const char *opens, long opened) {
    const Notes notes;
    EXPECT_TRUE(notes.clean());
    EXPECT_EQ(notes.count("flx met"), 0);
    EXPECT_EQ(notes.count("flx AllGather"), 3 * 6);
    EXPECT_EQ(notes.count(opens), opened);
}

TEST(Program, WhereOneOutputCannotBeOpenedAllRanksUseSlots) {
    use("on");
    setenv("FLX_TEST_NCCL_CLOSED", "1", 1);
    gather_much();
    expect_slots("opens", 0);
    use("on");
    setenv("FLX_TEST_NCCL_BLIND", "2", 1);
    gather_much();
    expect_slots("opens 2", 3);  // once each: then it is known
    use("on");
}

TEST(Program, NobodyShowsAnOutputThatPeersLeaveAlone) {
    use("on");
    setenv("FLX_TEST_NCCL_LEAVES", "1", 1);
    gather_much();
    expect_slots("opens", 0);
    use("on");
}

TEST(Program, NobodyWaitsLongForRanksThatComeLate) {
    use("on");
    setenv("FLX_TEST_NCCL_PATIENCE_MS", "1", 1);
    gather_much([](int rank) {
        if (rank == 1)
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
    });
    const Notes notes;
    EXPECT_TRUE(notes.clean());
    // On a machine that stops the others all may have come together now and then: all of them, or none.
    const long met = notes.count("flx met AllGather");
    EXPECT_EQ(met % 3, 0);
    EXPECT_LT(met, 3 * 6);
    EXPECT_EQ(met + notes.count("flx AllGather"), 3 * 6);
}

TEST(Program, OneThreadWithAllRanksGroupsItsCalls) {
    use("on");
    constexpr int kRanks = 4;
    std::vector<ncclComm_t> comms(kRanks);
    ASSERT_EQ(ncclCommInitAll(comms.data(), kRanks, nullptr), ncclSuccess);
    std::vector<cudaStream_t> streams;
    std::vector<Ints> data;
    for (int rank = 0; rank < kRanks; ++rank) {
        streams.push_back(fake::make_stream());
        data.push_back(values(rank, kSmall));
    }
    std::vector<Ints> more(kRanks, Ints(kHuge, 1));
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int rank = 0; rank < kRanks; ++rank)
        ASSERT_EQ(
            ncclAllReduce(more[rank].data(), more[rank].data(), kHuge, ncclInt32, ncclSum, comms[rank], streams[rank]),
            ncclSuccess);
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    for (int turn = 0; turn < 5; ++turn) {
        ASSERT_EQ(ncclGroupStart(), ncclSuccess);
        for (int rank = 0; rank < kRanks; ++rank) {
            ASSERT_EQ(ncclGroupStart(), ncclSuccess);  // groups within groups
            ASSERT_EQ(ncclAllReduce(data[rank].data(), data[rank].data(), kSmall, ncclInt32, ncclSum, comms[rank],
                                    streams[rank]),
                      ncclSuccess);
            ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
        }
        ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    }
    for (cudaStream_t stream : streams)
        ASSERT_TRUE(fake::synchronize(stream));
    for (int rank = 1; rank < kRanks; ++rank)
        EXPECT_EQ(data[rank], data[0]);
    EXPECT_EQ(data[0][3], (4 * 3 + 5 * (0 + 1 + 2 + 3)) * 4 * 4 * 4 * 4);
    for (int rank = 0; rank < kRanks; ++rank)
        EXPECT_EQ(more[rank], Ints(kHuge, kRanks));
    for (ncclComm_t comm : comms)
        EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    for (cudaStream_t stream : streams)
        fake::free_stream(stream);
    const Notes notes;
    EXPECT_TRUE(notes.clean());
    EXPECT_EQ(notes.count("flx AllReduce"), kRanks * 5);
    EXPECT_EQ(notes.count("flx met AllReduce"), kRanks);
    EXPECT_EQ(notes.count("flx closed"), kRanks);
}

TEST(Program, CollectivesGroupedOnOneCommunicatorStayTogether) {
    use("on");
    with_comms(3, [](int rank, ncclComm_t comm, cudaStream_t stream) {
        std::vector<Ints> data(4, values(rank, kSmall));
        for (int turn = 0; turn < 3; ++turn) {
            ncclGroupStart();
            for (Ints &one : data)
                EXPECT_EQ(ncclAllReduce(one.data(), one.data(), kSmall, ncclInt32, ncclSum, comm, stream), ncclSuccess);
            EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
            EXPECT_EQ(ncclAllReduce(data[0].data(), data[0].data(), kSmall, ncclInt32, ncclSum, comm, stream),
                      ncclSuccess);
        }
        ASSERT_TRUE(fake::synchronize(stream));
        EXPECT_EQ(data[1][2], (3 * 2 + 5 * 3) * 9);
        EXPECT_EQ(data[0][2], (3 * 2 + 5 * 3) * 9 * 27);
    });
    const Notes notes;
    EXPECT_TRUE(notes.clean());
    EXPECT_EQ(notes.count("nccl AllReduce"), 3 * 3 * 4);
    EXPECT_EQ(notes.count("flx AllReduce"), 3 * 3);
}

/// Rank r sends counts[r][s] elements to s, all in one group.
void exchange(int rank, int ranks, const std::vector<std::vector<size_t>> &counts, ncclComm_t comm,
              cudaStream_t stream) {
    size_t most = 0;
    for (const auto &row : counts)
        most = std::max(most, *std::max_element(row.begin(), row.end()));
    Ints out(most * ranks), in(most * ranks, -1);
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    size_t from = 0;
    size_t to = 0;
    for (int peer = 0; peer < ranks; ++peer) {
        std::fill_n(out.begin() + static_cast<ptrdiff_t>(from), counts[rank][peer], 100 * rank + peer);
        ASSERT_EQ(ncclSend(out.data() + from, counts[rank][peer], ncclInt32, peer, comm, stream), ncclSuccess);
        ASSERT_EQ(ncclRecv(in.data() + to, counts[peer][rank], ncclInt32, peer, comm, stream), ncclSuccess);
        from += counts[rank][peer];
        to += counts[peer][rank];
    }
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    ASSERT_TRUE(fake::synchronize(stream));
    to = 0;
    for (int peer = 0; peer < ranks; ++peer)
        for (size_t i = 0; i < counts[peer][rank]; ++i)
            ASSERT_EQ(in[to++], 100 * peer + rank);
}

TEST(Program, SendsAndReceivesThatAreAnAllToAllAreServed) {
    use("on");
    constexpr int kRanks = 4;
    with_comms(kRanks, [](int rank, ncclComm_t comm, cudaStream_t stream) {
        const std::vector<std::vector<size_t>> even(kRanks, std::vector<size_t>(kRanks, 50));
        for (int turn = 0; turn < 40; ++turn)  // more often than there are slots to agree in
            exchange(rank, kRanks, even, comm, stream);
        // A message between two ranks does not disturb it.
        Ints one(1);
        if (rank == 0) {
            ASSERT_EQ(ncclSend(one.data(), 1, ncclInt32, 1, comm, stream), ncclSuccess);
        } else if (rank == 1) {
            ASSERT_EQ(ncclRecv(one.data(), 1, ncclInt32, 0, comm, stream), ncclSuccess);
        }
        exchange(rank, kRanks, even, comm, stream);
    });
    const Notes notes;
    EXPECT_TRUE(notes.clean());
    // On a busy machine ranks may be too far apart at times.
    EXPECT_EQ(notes.count("flx AlltoAll") % kRanks, 0);
    if (notes.count("flx AlltoAll") == 0)
        GTEST_SKIP() << "skipped: threads of four ranks never came within 2 ms";
}

/// To rank 0 it looks like an all-to-all; it is none, and others see that.
TEST(Program, SendsAndReceivesThatOnlyLookLikeAnAllToAllAreMessages) {
    use("on");
    setenv("FLX_TEST_NCCL_PATIENCE_MS", "100", 1);
    constexpr int kRanks = 3;
    with_comms(kRanks, [](int rank, ncclComm_t comm, cudaStream_t stream) {
        std::vector<std::vector<size_t>> uneven(kRanks, std::vector<size_t>(kRanks, 10));
        uneven[1][2] = 30;
        const std::vector<std::vector<size_t>> even(kRanks, std::vector<size_t>(kRanks, 10));
        for (int turn = 0; turn < 10; ++turn)
            exchange(rank, kRanks, turn % 2 == 0 ? uneven : even, comm, stream);
    });
    const Notes notes;
    EXPECT_TRUE(notes.clean());
    EXPECT_GE(notes.count("flx Send"), 5 * kRanks * kRanks);
    EXPECT_EQ(notes.count("nccl Send"), 0);
    EXPECT_EQ(notes.count("flx AlltoAll") % kRanks, 0);
}

/// Alone and in groups, on whichever of two streams.
TEST(Program, MessagesAreFlxsOrNcclsByTheirSize) {
    use("auto");
    constexpr int kRanks = 3;
    with_comms(kRanks, [](int rank, ncclComm_t comm, cudaStream_t stream) {
        cudaStream_t other = fake::make_stream();
        const int next = (rank + 1) % kRanks;
        const int last = (rank + kRanks - 1) % kRanks;
        for (const size_t count : {kSmall, kLarge, kSmall}) {
            const Ints out = values(rank, count);
            Ints in(count);
            ncclGroupStart();
            ASSERT_EQ(ncclSend(out.data(), count, ncclInt32, next, comm, stream), ncclSuccess);
            ASSERT_EQ(ncclRecv(in.data(), count * 4, ncclUint8, last, comm, other), ncclSuccess);
            ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
            // What comes next on either stream comes after both.
            Ints copy(count);
            fake::enqueue(stream, [&] { copy = in; });
            ASSERT_TRUE(fake::synchronize(stream));
            EXPECT_EQ(copy, values(last, count));
            ASSERT_TRUE(fake::synchronize(other));
            if (rank == 0) {
                ASSERT_EQ(ncclSend(out.data(), count, ncclInt32, 1, comm, other), ncclSuccess);
            } else if (rank == 1) {
                ASSERT_EQ(ncclRecv(in.data(), count, ncclInt32, 0, comm, stream), ncclSuccess);
                ASSERT_TRUE(fake::synchronize(stream));
                EXPECT_EQ(in, values(0, count));
            }
            ASSERT_TRUE(fake::synchronize(other));
        }
        fake::free_stream(other);
    });
    const Notes notes;
    EXPECT_TRUE(notes.clean());
    // Those of measuring go beside them, by both.
    EXPECT_GE(notes.count("flx Send"), 2 * (kRanks + 1));
    EXPECT_GE(notes.count("nccl Send"), kRanks + 1);
}

/// What one rank has in a group the other has one after the other: neither part of the group may wait for the other.
TEST(Program, GroupsMayBeOfMessagesOfBothThatThePeerHasOneAfterTheOther) {
    use("auto");
    with_comms(2, [](int rank, ncclComm_t comm, cudaStream_t stream) {
        for (const auto &[first, second] : {std::pair(kSmall, kLarge), std::pair(kLarge, kSmall)}) {
            Ints there = values(rank, first);
            Ints back = values(rank, second);
            Ints own(kSmall);
            Ints sum(kLarge, 1);
            if (rank == 0) {
                ncclGroupStart();
                ASSERT_EQ(ncclRecv(back.data(), second, ncclInt32, 1, comm, stream), ncclSuccess);
                ASSERT_EQ(ncclSend(there.data(), first, ncclInt32, 1, comm, stream), ncclSuccess);
                // To itself.
                ASSERT_EQ(ncclSend(there.data(), kSmall, ncclInt32, 0, comm, stream), ncclSuccess);
                ASSERT_EQ(ncclRecv(own.data(), kSmall, ncclInt32, 0, comm, stream), ncclSuccess);
                ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
            } else {
                ASSERT_EQ(ncclRecv(there.data(), first, ncclInt32, 0, comm, stream), ncclSuccess);
                ASSERT_EQ(ncclSend(back.data(), second, ncclInt32, 0, comm, stream), ncclSuccess);
            }
            ASSERT_EQ(ncclAllReduce(sum.data(), sum.data(), kLarge, ncclInt32, ncclSum, comm, stream), ncclSuccess);
            ASSERT_TRUE(fake::synchronize(stream));
            EXPECT_EQ(there, values(0, first));
            EXPECT_EQ(back, values(1, second));
            EXPECT_EQ(sum, Ints(kLarge, 2));
            if (rank == 0) {
                EXPECT_EQ(own, values(0, kSmall));
            }
        }
    });
    EXPECT_TRUE(Notes().clean());
}

TEST(Program, AMessageToItselfAloneIsNccls) {
    use("on");
    with_comms(2, [](int rank, ncclComm_t comm, cudaStream_t stream) {
        const Ints out = values(rank, kSmall);
        Ints in(kSmall);
        ncclGroupStart();
        ASSERT_EQ(ncclSend(out.data(), kSmall, ncclInt32, rank, comm, stream), ncclSuccess);
        ASSERT_EQ(ncclRecv(in.data(), kSmall, ncclInt32, rank, comm, stream), ncclSuccess);
        ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
        ASSERT_TRUE(fake::synchronize(stream));
        EXPECT_EQ(in, out);
    });
    const Notes notes;
    EXPECT_TRUE(notes.clean());
    EXPECT_EQ(notes.count("nccl Send"), 2);
    EXPECT_EQ(notes.count("flx Send"), 0);
}

TEST(Program, PartsOfACommunicatorAreServedToo) {
    use("on");
    constexpr int kRanks = 5;
    with_comms(kRanks, [&](int rank, ncclComm_t comm, cudaStream_t stream) {
        // Ranks 0 and 2, 1 and 3, and 4 without any.
        ncclComm_t part = nullptr;
        if (rank == 1)
            ncclGroupStart();
        ASSERT_EQ(ncclCommSplit(comm, rank == 4 ? kNcclNoColor : rank % 2, -rank, &part, nullptr), ncclSuccess);
        if (rank == 1) {
            ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
        }
        ASSERT_EQ(part == nullptr, rank == 4);
        Ints data(10, rank);
        if (part != nullptr) {
            int mine = -1;
            ASSERT_EQ(ncclCommUserRank(part, &mine), ncclSuccess);
            EXPECT_EQ(mine, rank < 2 ? 1 : 0);
            ASSERT_EQ(ncclAllReduce(data.data(), data.data(), 10, ncclInt32, ncclSum, part, stream), ncclSuccess);
        }
        Ints whole(10, 1);
        ASSERT_EQ(ncclAllReduce(whole.data(), whole.data(), 10, ncclInt32, ncclSum, comm, stream), ncclSuccess);
        ASSERT_TRUE(fake::synchronize(stream));
        EXPECT_EQ(data[0], rank == 4 ? 4 : rank % 2 == 0 ? 2 : 4);
        EXPECT_EQ(whole[0], kRanks);
        if (part != nullptr) {
            EXPECT_EQ(ncclCommDestroy(part), ncclSuccess);
        }
    });
    const Notes notes;
    EXPECT_TRUE(notes.clean());
    EXPECT_EQ(notes.count("flx AllReduce"), 4 + kRanks);
    EXPECT_EQ(notes.count("nccl AllReduce"), 0);
}

TEST(Program, ACommunicatorThatDoesNotBlockIsServedWhenItIsReady) {
    use("on");
    const ncclUniqueId id = new_id();
    with_ranks(3, [&](int rank) {
        ncclConfig_t config{sizeof config, 0xcafebeef, 22809, 0};
        ncclComm_t comm = nullptr;
        ASSERT_EQ(ncclCommInitRankConfig(&comm, 3, id, rank, &config), ncclInProgress);
        cudaStream_t stream = fake::make_stream();
        Ints data(10, rank);
        ncclResult_t state = ncclInProgress;
        while (state == ncclInProgress) {
            ASSERT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        ASSERT_EQ(state, ncclSuccess);
        ASSERT_EQ(ncclAllReduce(data.data(), data.data(), 10, ncclInt32, ncclSum, comm, stream), ncclSuccess);
        ASSERT_TRUE(fake::synchronize(stream));
        EXPECT_EQ(data[9], 3);
        EXPECT_EQ(ncclCommFinalize(comm), ncclSuccess);
        EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
        fake::free_stream(stream);
    });
    const Notes notes;
    EXPECT_TRUE(notes.clean());
    EXPECT_EQ(notes.count("flx AllReduce"), 3);
}

TEST(Program, WhereOneRankCannotNcclServesAll) {
    use("on");
    setenv("FLX_TEST_NCCL_FAIL", "1", 1);
    with_comms(3, [](int rank, ncclComm_t comm, cudaStream_t stream) {
        Ints data(kSmall, rank);
        ASSERT_EQ(ncclAllReduce(data.data(), data.data(), kSmall, ncclInt32, ncclSum, comm, stream), ncclSuccess);
        ASSERT_TRUE(fake::synchronize(stream));
        EXPECT_EQ(data[7], 3);
    });
    const Notes notes;
    EXPECT_TRUE(notes.clean());
    EXPECT_EQ(notes.count("nccl AllReduce"), 3);
    EXPECT_EQ(notes.count("flx AllReduce"), 0);
}

TEST(Program, ErrorsKeepNcclsCodesAndNameFlx) {
    use("on");
    setenv("FLX_TEST_NCCL_BREAK", "0", 1);
    const ncclUniqueId id = new_id();
    with_ranks(2, [&](int rank) {
        ncclComm_t comm = nullptr;
        ASSERT_EQ(ncclCommInitRank(&comm, 2, id, rank), ncclSuccess);
        cudaStream_t stream = fake::make_stream();
        Ints data(10, rank);
        for (int call = 0; call < 2; ++call)
            ASSERT_EQ(ncclAllReduce(data.data(), data.data(), 10, ncclInt32, ncclSum, comm, stream), ncclSuccess);
        ASSERT_TRUE(fake::synchronize(stream));
        ncclResult_t state = ncclInProgress;
        ASSERT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
        EXPECT_EQ(state, ncclSuccess);
        if (rank == 0) {
            EXPECT_EQ(ncclAllReduce(data.data(), data.data(), 10, ncclInt32, ncclSum, comm, stream), ncclRemoteError);
            EXPECT_EQ(std::string(ncclGetLastError(comm)),
                      "FLX, rank 0 of 2: rank 1 (host nowhere) died; link nvlink [FLX-E601]");
            ASSERT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
            EXPECT_EQ(state, ncclRemoteError);
        }
        EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
        fake::free_stream(stream);
    });
    Notes notes;
    notes.await("flx gone", 2);
    EXPECT_TRUE(notes.clean());
    EXPECT_EQ(notes.count("flx gone"), 2);
    EXPECT_EQ(notes.count("nccl abort"), 2);
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}
constexpr double kSoon = 1;  ///< a busy machine's, where milliseconds are meant

/// Rank 0 calls what its peer never calls, by `queue`; then it aborts, and its stream is to be empty at once. The peer
/// aborts, too, in its own time. `end` ends what still uses the stream.
void abort_alone(
    const std::function<void(ncclComm_t, cudaStream_t)> &queue, const std::function<void()> &end = [] {}) {
    const ncclUniqueId id = new_id();
    with_ranks(2, [&](int rank) {
        ncclComm_t comm = nullptr;
        ASSERT_EQ(ncclCommInitRank(&comm, 2, id, rank), ncclSuccess);
        cudaStream_t stream = fake::make_stream();
        if (rank == 0) {
            queue(comm, stream);
            const auto begin = std::chrono::steady_clock::now();
            EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
            EXPECT_LT(seconds_since(begin), kSoon);
            end();
            EXPECT_TRUE(fake::synchronize(stream));
            EXPECT_LT(seconds_since(begin), 2 * kSoon);
        } else {
            EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
        }
        fake::free_stream(stream);
    });
    Notes notes;
    notes.await("flx gone", 2);
    EXPECT_TRUE(notes.clean());
    EXPECT_EQ(notes.count("flx gone"), 2);
    EXPECT_EQ(notes.count("nccl abort"), 2);
}

TEST(Program, AnAbortEndsWhatIsQueued) {
    use("on");
    Ints data(10);
    abort_alone([&](ncclComm_t comm, cudaStream_t stream) {
        for (int call = 0; call < 600; ++call)
            ASSERT_EQ(ncclAllReduce(data.data(), data.data(), 10, ncclInt32, ncclSum, comm, stream), ncclSuccess);
    });
}

/// FLX's calls are queued behind one that only NCCL's abort ends: it is called though they have not ended.
TEST(Program, AnAbortReachesNcclWithoutWaitingForTheGpu) {
    use("on");
    Ints data(10);
    abort_alone([&](ncclComm_t comm, cudaStream_t stream) {
        ncclRedOp_t own = ncclSum;
        ASSERT_EQ(ncclRedOpCreatePreMulSum(&own, nullptr, ncclInt32, ncclScalarDevice, comm), ncclSuccess);
        ASSERT_EQ(ncclAllReduce(data.data(), data.data(), 10, ncclInt32, own, comm, stream), ncclSuccess);
        for (int call = 0; call < 10; ++call)
            ASSERT_EQ(ncclAllReduce(data.data(), data.data(), 10, ncclInt32, ncclSum, comm, stream), ncclSuccess);
    });
}

/// Where a stream takes no more, a call waits for room with all locks that calls take.
TEST(Program, AnAbortDoesNotWaitForACallThatWaitsForRoomOnItsStream) {
    use("on");
    setenv("FLX_TEST_NCCL_ROOM", "8", 1);
    Ints data(10);
    std::thread caller;
    std::atomic<int> calls{0};
    std::atomic<bool> aborts{false};
    const auto queue = [&](ncclComm_t comm, cudaStream_t stream) {
        caller = std::thread([&, comm, stream] {
            while (!aborts) {  // from then on the handle is nobody's
                ++calls;
                if (ncclAllReduce(data.data(), data.data(), 10, ncclInt32, ncclSum, comm, stream) != ncclSuccess)
                    return;
            }
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        const int before = calls;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        EXPECT_EQ(calls, before) << "the thread is in a call";
        aborts = true;
    };
    abort_alone(queue, [&] { caller.join(); });
    use("on");
}

/// NCCL frees its communicator in an abort: who still measures it calls NCCL no more.
TEST(Program, AnAbortWhileItIsMeasuredLeavesNcclsHandleAlone) {
    use("auto");
    setenv("FLX_TEST_NCCL_SLOW", "200", 1);  // longer than an abort waits for who is preparing
    const ncclUniqueId id = new_id();
    with_ranks(2, [&](int rank) {
        constexpr int kUnmeasured = 40;  // between these GPUs
        fake_set_device(kUnmeasured + rank);
        ncclConfig_t config{sizeof config, 0xcafebeef, 22809, 0};
        ncclComm_t comm = nullptr;
        ASSERT_EQ(ncclCommInitRankConfig(&comm, 2, id, rank, &config), ncclInProgress);
        std::this_thread::sleep_for(std::chrono::milliseconds(150));
        const auto begin = std::chrono::steady_clock::now();
        EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
        EXPECT_LT(seconds_since(begin), kSoon);
    });
    Notes notes;
    notes.await("flx gone", 2);
    EXPECT_TRUE(notes.clean());
    EXPECT_EQ(notes.count("flx gone"), 2);
    EXPECT_EQ(notes.count("nccl abort"), 2);
    EXPECT_EQ(notes.count("nccl used after"), 0);
    use("on");
}

TEST(Program, ArgumentsAreNcclsToJudge) {
    use("on");
    with_comms(2, [](int, ncclComm_t comm, cudaStream_t stream) {
        Ints data(10);
        EXPECT_EQ(ncclAllReduce(data.data(), data.data(), SIZE_MAX / 2, ncclInt32, ncclSum, comm, stream),
                  ncclInvalidArgument);
        EXPECT_EQ(std::string(ncclGetLastError(comm)), "the fake NCCL's last error");
        EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
    });
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRank(&comm, 2, new_id(), 2), ncclInvalidArgument);
}

TEST(Program, WhatTheProgramChoosesForOneCallIsNccls) {
    use("on");
    with_comms(2, [](int rank, ncclComm_t comm, cudaStream_t stream) {
        Ints one = values(rank, kSmall);
        Ints two(kSmall);
        Ints three(kSmall);
        std::string algorithm = "RING";
        ncclCollConfig_t config{};
        config.size = sizeof config;
        config.algSelection = algorithm.c_str();
        ASSERT_EQ(ncclAllReduce(one.data(), two.data(), kSmall, ncclInt32, ncclSum, comm, stream), ncclSuccess);
        EXPECT_EQ(ncclAllReduceConfig(two.data(), three.data(), kSmall, ncclInt32, ncclSum, comm, stream, &config),
                  ncclSuccess);
        ASSERT_EQ(ncclGroupStart(), ncclSuccess);
        EXPECT_EQ(ncclAllReduceConfig(three.data(), one.data(), kSmall, ncclInt32, ncclSum, comm, stream, &config),
                  ncclSuccess);
        algorithm = "GONE";  // before the group ends
        config.algSelection = nullptr;
        ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
        EXPECT_EQ(ncclAllReduceConfig(one.data(), two.data(), kSmall, ncclInt32, ncclSum, comm, stream, nullptr),
                  ncclSuccess);
        const auto gather = reinterpret_cast<decltype(&ncclGatherConfig)>(dlsym(RTLD_DEFAULT, "ncclGatherConfig"));
        ASSERT_NE(gather, nullptr);
        EXPECT_EQ(gather(one.data(), two.data(), 8, ncclInt32, 0, comm, stream, &config), ncclInvalidUsage);
        EXPECT_NE(std::string(ncclGetLastError(comm)).find("ncclGatherConfig is called, which"), std::string::npos);
        ASSERT_TRUE(fake::synchronize(stream));
        const Ints of_0 = values(0, kSmall);
        const Ints of_1 = values(1, kSmall);
        for (size_t i = 0; i < kSmall; ++i)
            ASSERT_EQ(two[i], (of_0[i] + of_1[i]) * 8);
    });
    const Notes notes;
    EXPECT_TRUE(notes.clean());
    EXPECT_EQ(notes.count("chose RING"), 4);
    EXPECT_EQ(notes.count("chose "), 4);
    EXPECT_EQ(notes.count("nccl AllReduce"), 4);
    EXPECT_EQ(notes.count("flx AllReduce"), 4);
}

TEST(Program, ASignalComesAfterWhatFlxWasGivenBefore) {
    use("on");
    with_comms(2, [](int rank, ncclComm_t comm, cudaStream_t stream) {
        const cudaStream_t other = fake::make_stream();
        Ints data = values(rank, kSmall);
        ASSERT_EQ(ncclAllReduce(data.data(), data.data(), kSmall, ncclInt32, ncclSum, comm, stream), ncclSuccess);
        fake::enqueue(stream, [rank] { fake::note("added " + std::to_string(rank)); });
        ASSERT_EQ(ncclAllReduce(data.data(), data.data(), kSmall, ncclInt32, ncclSum, comm, stream), ncclSuccess);
        EXPECT_EQ(ncclSignal(1 - rank, 0, 0, 0, comm, other), ncclSuccess);
        ASSERT_TRUE(fake::synchronize(other));
        fake::free_stream(other);
    });
    const Notes notes;
    EXPECT_TRUE(notes.clean());
    for (const int rank : {0, 1}) {
        const auto at = [&](const std::string &line) {
            return std::find(notes.lines.begin(), notes.lines.end(), line) - notes.lines.begin();
        };
        const std::string own = std::to_string(rank);
        EXPECT_LT(at("added " + own), at("signal from " + own + " to " + std::to_string(1 - rank)));
        EXPECT_LT(at("signal from " + own + " to " + std::to_string(1 - rank)), static_cast<long>(notes.lines.size()));
    }
}

TEST(Program, ASuspendedCommunicatorIsForNcclToJudge) {
    use("on");
    with_comms(2, [](int rank, ncclComm_t comm, cudaStream_t stream) {
        Ints data = values(rank, kSmall);
        const auto call = [&] {
            return ncclAllReduce(data.data(), data.data(), kSmall, ncclInt32, ncclSum, comm, stream);
        };
        EXPECT_EQ(call(), ncclSuccess);
        ASSERT_TRUE(fake::synchronize(stream));
        EXPECT_EQ(ncclCommSuspend(comm, 1), ncclSuccess);
        EXPECT_EQ(call(), ncclInvalidArgument);
        EXPECT_EQ(ncclCommResume(comm), ncclSuccess);
        EXPECT_EQ(call(), ncclSuccess);
        ASSERT_TRUE(fake::synchronize(stream));
        EXPECT_EQ(data[1], 2 * (values(0, 2)[1] + values(1, 2)[1]));
    });
    const Notes notes;
    EXPECT_TRUE(notes.clean());
    EXPECT_EQ(notes.count("flx AllReduce"), 4);
    EXPECT_EQ(notes.count("nccl AllReduce"), 0);
}

TEST(Program, ANewerProgramIsNccls) {
    use("on");
    const ncclUniqueId id = new_id();
    with_ranks(2, [&](int rank) {
        ncclConfig_t config{};
        config.size = sizeof config;
        config.magic = kNcclMagic;
        config.version = 23300;
        config.blocking = 1;
        ncclComm_t comm = nullptr;
        ASSERT_EQ(ncclCommInitRankConfig(&comm, 2, id, rank, &config), ncclSuccess);
        cudaStream_t stream = fake::make_stream();
        Ints data = values(rank, kSmall);
        EXPECT_EQ(ncclAllReduce(data.data(), data.data(), kSmall, ncclInt32, ncclSum, comm, stream), ncclSuccess);
        EXPECT_TRUE(fake::synchronize(stream));
        EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
        fake::free_stream(stream);
    });
    const Notes notes;
    EXPECT_TRUE(notes.clean());
    EXPECT_EQ(notes.count("nccl AllReduce"), 2);
    EXPECT_EQ(notes.count("flx "), 0);
}

TEST(Program, WhereTheLibraryIsNewerAProgramThatSaysNothingMayBeToo) {
    use("on");
    setenv("FLX_TEST_NCCL_VERSION", "23300", 1);
    int version = 0;
    ASSERT_EQ(ncclGetVersion(&version), ncclSuccess);
    ASSERT_EQ(version, 23300) << "the library was asked before: this test needs a process of its own";
    with_comms(2, [](int rank, ncclComm_t comm, cudaStream_t stream) {
        Ints data = values(rank, kSmall);
        EXPECT_EQ(ncclAllReduce(data.data(), data.data(), kSmall, ncclInt32, ncclSum, comm, stream), ncclSuccess);
        EXPECT_TRUE(fake::synchronize(stream));
    });
    const Notes notes;
    EXPECT_EQ(notes.count("nccl AllReduce"), 2);
    EXPECT_EQ(notes.count("flx "), 0);
}

TEST(Program, WhatLittleMemorySlowsDownIsNccls) {
    use("auto");
    const auto call = [](size_t count) {
        return [count](int rank, ncclComm_t comm, cudaStream_t stream) {
            Ints data = values(rank, count);
            ASSERT_EQ(ncclAllReduce(data.data(), data.data(), count, ncclInt32, ncclSum, comm, stream), ncclSuccess);
            ASSERT_TRUE(fake::synchronize(stream));
        };
    };
    with_comms(2, call(kSmall));
    Notes all;
    EXPECT_GE(all.count("flx AllReduce"), 2) << "and what was measured";
    setenv("FLX_TEST_NCCL_LITTLE", "1000", 1);
    with_comms(2, call(200));
    EXPECT_EQ(Notes().count("flx AllReduce"), 2) << "with the table of a communicator that had more";
    with_comms(2, call(kSmall));
    const Notes slow;
    EXPECT_TRUE(slow.clean());
    EXPECT_EQ(slow.count("flx AllReduce"), 0);
    EXPECT_EQ(slow.count("nccl AllReduce"), 2);
    with_comms(3, [&](int rank, ncclComm_t comm, cudaStream_t stream) {
        fake::take_notes();
        call(kSmall)(rank, comm, stream);
    });
    EXPECT_GT(Notes().count("flx AllReduce"), 0) << "these were measured with as little";
}

TEST(Program, SwitchedOffAllGoesToNccl) {
    use("off");
    with_comms(2, [](int, ncclComm_t comm, cudaStream_t stream) {
        Ints data(10);
        EXPECT_EQ(ncclAllReduce(data.data(), data.data(), 10, ncclInt32, ncclSum, comm, stream), ncclSuccess);
        ASSERT_TRUE(fake::synchronize(stream));
    });
    const Notes notes;
    EXPECT_EQ(notes.count("nccl AllReduce"), 2);
    EXPECT_EQ(notes.count("flx "), 0);
}

TEST(Program, MoreRanksThanFlxServesAreNccls) {
    use("on");
    with_comms(9, [](int, ncclComm_t comm, cudaStream_t stream) {
        Ints data(10);
        EXPECT_EQ(ncclAllReduce(data.data(), data.data(), 10, ncclInt32, ncclSum, comm, stream), ncclSuccess);
        ASSERT_TRUE(fake::synchronize(stream));
    });
    EXPECT_EQ(Notes().count("nccl AllReduce"), 9);
}

}  // namespace

/// Collectives and messages on GPU memory between hosts, without GPUs: how they are cut, and lanes whose streams are
/// host threads and whose ranks meet in this process.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "runtime/cuda/far/far_lanes.h"
#include "tests/runtime/cuda/far/host_stream.h"
#include "tests/runtime/plan/calls.h"

namespace flx::cuda {
namespace {

using testing::HostStream;
using testing::TestBuffers;
using testing::TestCall;

/// Copies of all pieces touch every byte that they should, once, and stay within the slot.
TEST(FarCut, PiecesCoverTheVectorOnce) {
    for (const Collective collective : kServed) {
        for (const int ranks : {2, 3, 5}) {
            for (const flx_dtype_t dtype : {FLX_UINT8, FLX_F32, FLX_F64}) {
                for (const uint64_t slot : {least_far_slot(ranks), uint64_t{4096}, uint64_t{1} << 16}) {
                    for (const uint64_t part : {1, 3, 1000, 8191, 20'000}) {
                        Operation call;
                        call.collective = collective;
                        call.dtype = dtype;
                        call.root = ranks - 1;
                        call.count = part * (has_blocks(collective) ? static_cast<uint64_t>(ranks) : 1);
                        const FarCut cut = cut_far(call, ranks, slot);
                        std::vector<char> in(call.count * cut.element), out(call.count * cut.element);
                        std::vector<char> space(slot);
                        call.in = in.data();
                        call.out = out.data();
                        for (int rank = 0; rank < ranks; ++rank) {
                            if (collective == Collective::bcast)
                                call.in = out.data();
                            std::vector<int> given(in.size()), got(out.size());
                            std::vector<FarCopy> give, take;
                            for (uint32_t piece = 0; piece < cut.pieces(); ++piece) {
                                far_copies(call, cut, rank, ranks, piece, give, take);
                                EXPECT_EQ(take.empty(), !far_receives(call, rank));
                                const Operation on_host = far_call(call, cut, rank, ranks, piece, space.data());
                                const auto *result = static_cast<const char *>(on_host.out);
                                EXPECT_LE(result - space.data() + on_host.count * cut.element, slot);
                                for (const FarCopy &copy : give) {
                                    ASSERT_LE(copy.at + copy.bytes, slot);
                                    const auto *base = static_cast<const char *>(call.in);
                                    for (uint64_t i = 0; i < copy.bytes; ++i)
                                        ++given.at(static_cast<size_t>(copy.device - base) + i);
                                }
                                for (const FarCopy &copy : take) {
                                    ASSERT_LE(copy.at + copy.bytes, slot);
                                    for (uint64_t i = 0; i < copy.bytes; ++i)
                                        ++got.at(static_cast<size_t>(copy.device - out.data()) + i);
                                }
                            }
                            const bool gives = collective != Collective::bcast || rank == call.root;
                            const size_t gives_bytes = !gives                                ? 0
                                                       : collective == Collective::allgather ? part * cut.element
                                                                                             : in.size();
                            const size_t gets_bytes = !far_receives(call, rank) ? 0
                                                      : collective == Collective::reduce_scatter_block
                                                          ? part * cut.element
                                                          : out.size();
                            EXPECT_EQ(std::count(given.begin(), given.end(), 1), gives_bytes);
                            EXPECT_EQ(std::count(given.begin(), given.end(), 0), in.size() - gives_bytes);
                            EXPECT_EQ(std::count(got.begin(), got.end(), 1), gets_bytes);
                            EXPECT_EQ(std::count(got.begin(), got.end(), 0), out.size() - gets_bytes);
                        }
                    }
                }
            }
        }
    }
}

TEST(FarCut, AGatherInPlaceLeavesItsOwnBlock) {
    std::vector<char> out(3000);
    Operation call{Collective::allgather, out.data() + 1000, out.data(), 3000, FLX_UINT8, FLX_SUM, 0};
    const FarCut cut = cut_far(call, 3, 4096);
    std::vector<FarCopy> give, take;
    far_copies(call, cut, 1, 3, 0, give, take);
    ASSERT_EQ(take.size(), 2U);
    EXPECT_EQ(take[0].device, out.data());
    EXPECT_EQ(take[1].device, out.data() + 2000);
}

TEST(FarCut, MessagesOfDifferentLengthsNeverLookAlike) {
    for (const uint64_t sent : {1, 999, 1000, 1001, 1008, 2000, 2001})
        for (const uint64_t expected : {1, 999, 1000, 1001, 1008, 2000, 2001}) {
            const FarMessageCut out{sent, 1000}, in{expected, 1000};
            const bool same_first = out.carried(0) == in.carried(0);
            // Where the first pieces are as long, either the messages are, or the first one ends with the length.
            EXPECT_TRUE(!same_first || sent == expected || (out.has_trailer(0) && in.has_trailer(0)));
        }
}

TEST(FarLayout, FitsItsBudget) {
    for (const int ranks : {2, 3, 16, 200}) {
        for (const uint64_t budget : {uint64_t{0}, uint64_t{100'000}, uint64_t{1} << 20, uint64_t{64} << 20}) {
            const FarLayout layout = FarLayout::fit(ranks, budget);
            if (layout.slot_bytes != 0) {
                EXPECT_LE(layout.bytes(), budget);
                EXPECT_GE(layout.slot_bytes, least_far_slot(ranks));
            }
        }
        EXPECT_NE(FarLayout::fit(ranks, uint64_t{64} << 20).slot_bytes, 0U);
        EXPECT_EQ(FarLayout::fit(ranks, 0).slot_bytes, 0U);
    }
}

/// Ranks of this process: the last one that comes to a collective carries it out for all.
class Meeting {
  public:
    explicit Meeting(int ranks) : ranks_(ranks), counts_(static_cast<size_t>(ranks)) {}

    struct Ticket {
        std::atomic<bool> done{false};
        std::vector<Operation> calls;
        Message message;
        Ticket *mate = nullptr;
    };

    Ticket *come(int rank, const Operation &call) {
        const std::lock_guard lock(mutex_);
        Round &round = rounds_[counts_[static_cast<size_t>(rank)]++];
        round.calls.resize(static_cast<size_t>(ranks_));
        round.calls[static_cast<size_t>(rank)] = call;
        round.tickets.push_back(std::make_unique<Ticket>());
        Ticket *mine = round.tickets.back().get();
        if (round.tickets.size() == static_cast<size_t>(ranks_)) {
            carry_out(round.calls);
            for (const auto &ticket : round.tickets)
                ticket->done = true;
        }
        return mine;
    }
    Ticket *post(int rank, const Message &message) {
        const std::lock_guard lock(mutex_);
        const std::pair<int, int> pair = message.sends ? std::pair(rank, message.peer) : std::pair(message.peer, rank);
        auto &here = waiting_[{pair.first, pair.second, message.sends}];
        auto &there = waiting_[{pair.first, pair.second, !message.sends}];
        messages_.push_back(std::make_unique<Ticket>());
        Ticket *mine = messages_.back().get();
        mine->message = message;
        if (there.empty()) {
            here.push_back(mine);
            return mine;
        }
        Ticket *mate = there.front();
        there.erase(there.begin());
        EXPECT_EQ(mate->message.bytes, message.bytes);
        const Message &from = message.sends ? message : mate->message;
        const Message &to = message.sends ? mate->message : message;
        std::memcpy(to.memory, from.memory, from.bytes);
        mate->done = true;
        mine->done = true;
        return mine;
    }
    static bool done(const Ticket *ticket) { return ticket->done; }

  private:
    struct Round {
        std::vector<Operation> calls;
        std::vector<std::unique_ptr<Ticket>> tickets;
    };

    void carry_out(const std::vector<Operation> &calls) const {
        const Operation &any = calls[0];
        const size_t element = size_of(any.dtype);
        const size_t bytes = any.count * element;
        const size_t block = bytes / static_cast<size_t>(ranks_);
        std::vector<std::vector<char>> inputs;
        std::vector<const void *> sources;
        for (const Operation &call : calls) {
            EXPECT_EQ(call.count, any.count);
            const auto *from = static_cast<const char *>(call.in);
            inputs.emplace_back(from, from + (any.collective == Collective::allgather ? block : bytes));
        }
        for (const auto &input : inputs)
            sources.push_back(input.data());
        std::vector<char> sum(bytes);
        if (reduces(any.collective))
            reduce_many(any.dtype, any.op, sum.data(), sources.data(), ranks_, any.count,
                        any.op == FLX_AVG ? ranks_ : 1, false);
        for (int rank = 0; rank < ranks_; ++rank) {
            char *out = static_cast<char *>(calls[static_cast<size_t>(rank)].out);
            const size_t place = static_cast<size_t>(rank) * block;
            if (any.collective == Collective::allreduce || (any.collective == Collective::reduce && rank == any.root))
                std::memcpy(out, sum.data(), bytes);
            else if (any.collective == Collective::reduce_scatter_block)
                std::memcpy(out, sum.data() + place, block);
            else if (any.collective == Collective::bcast)
                std::memcpy(out, inputs[static_cast<size_t>(any.root)].data(), bytes);
            for (size_t from = 0; from < inputs.size(); ++from) {
                if (any.collective == Collective::allgather)
                    std::memcpy(out + from * block, inputs[from].data(), block);
                else if (any.collective == Collective::alltoall)
                    std::memcpy(out + from * block, inputs[from].data() + place, block);
            }
        }
    }

    const int ranks_;
    std::mutex mutex_;
    std::vector<uint64_t> counts_;
    std::map<uint64_t, Round> rounds_;
    std::map<std::tuple<int, int, bool>, std::vector<Ticket *>> waiting_;
    std::vector<std::unique_ptr<Ticket>> messages_;
};

class MeetingHost final : public FarHost {
  public:
    MeetingHost(Meeting &meeting, int rank) : meeting_(meeting), rank_(rank) {}
    Status begin(const Operation &call, void *&ticket) override {
        ++begun;
        ticket = meeting_.come(rank_, call);
        return fails();
    }
    Status begin_across(const Operation &call, void *&ticket) override {
        ++begun;
        ticket = across->come(place_across, call);
        return fails();
    }
    Status begin(const Message &message, void *&ticket) override {
        ++begun;
        ticket = meeting_.post(rank_, message);
        return fails();
    }
    [[nodiscard]] Status told() const override { return {}; }
    Status look(void *ticket, bool &done) override {
        done = Meeting::done(static_cast<Meeting::Ticket *>(ticket));
        return fails();
    }
    void moved() override {}
    Status pause() override {
        std::this_thread::yield();
        return {};
    }
    Status watch() override { return {}; }
    void give_up(const Status & /*why*/) override { ++given_up; }
    void close() override {}
    [[nodiscard]] std::vector<std::string> report() const override { return {}; }

    std::atomic<bool> broken{false};
    std::atomic<int> begun{0};
    std::atomic<int> given_up{0};
    Meeting *across = nullptr;
    int place_across = 0;

  private:
    [[nodiscard]] Status fails() const {
        if (broken)
            return fail(Fault::peer_died, "rank 1 died");
        return {};
    }

    Meeting &meeting_;
    const int rank_;
};

/// One rank's lanes and their memory.
struct Rank {
    Rank(Meeting &meeting, int rank, int ranks, uint64_t budget, const Tiers &tiers = {})
        : layout(FarLayout::fit(ranks, budget)), memory(layout.bytes() + kLine), host(meeting, rank) {
        void *place = memory.data();
        size_t room = memory.size();
        lanes = std::make_unique<FarLanes>(host, rank, layout,
                                           static_cast<char *>(std::align(kLine, layout.bytes(), place, room)), tiers);
    }
    static constexpr size_t kLine = 128;
    FarLayout layout;
    std::vector<char> memory;
    MeetingHost host;
    std::unique_ptr<FarLanes> lanes;
};

void wait_for(FarLanes &lanes) {
    while (lanes.busy())
        std::this_thread::yield();
}

TestCall random_call(std::mt19937 &random, int ranks, size_t most) {
    const Collective collectives[] = {Collective::allreduce, Collective::reduce_scatter_block,
                                      Collective::allgather, Collective::bcast,
                                      Collective::reduce,    Collective::alltoall};
    TestCall call;
    call.collective = collectives[random() % 6];
    call.dtype = random() % 2 == 0 ? FLX_F32 : FLX_INT16;
    call.op = random() % 4 == 0 ? FLX_MAX : FLX_SUM;
    call.ranks = ranks;
    call.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
    call.count = (random() % 3 == 0 ? random() % 10 : random() % most) * static_cast<size_t>(ranks);
    call.in_place = random() % 2 == 0;
    call.seed = random();
    return call;
}

/// Calls on two streams, one after the other without waits between, on slots far smaller than the vectors.
void run_collectives(int ranks, uint64_t budget, int calls, size_t most) {
    Meeting meeting(ranks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank)
        threads.emplace_back([&, rank] {
            Rank self(meeting, rank, ranks, budget);
            ASSERT_NE(self.layout.slot_bytes, 0U);
            HostStream streams[2];
            std::mt19937 same(11);
            std::vector<std::unique_ptr<TestBuffers>> buffers;
            std::vector<TestCall> made;
            for (int i = 0; i < calls; ++i) {
                const TestCall call = random_call(same, ranks, most);
                made.push_back(call);
                const auto &data = buffers.emplace_back(std::make_unique<TestBuffers>(call, rank));
                const Operation given{call.collective, call.collective == Collective::bcast ? data->out() : data->in(),
                                      data->out(),     call.count,
                                      call.dtype,      call.op,
                                      call.root};
                ASSERT_TRUE(self.lanes->enqueue(given, streams[same() % 2]).ok());
            }
            for (HostStream &stream : streams)
                stream.synchronize();
            wait_for(*self.lanes);
            EXPECT_TRUE(self.lanes->failure().ok());
            for (size_t i = 0; i < made.size(); ++i) {
                EXPECT_EQ(buffers[i]->result(), testing::result_of(made[i], rank))
                    << "rank " << rank << ": " << made[i].text();
                EXPECT_TRUE(buffers[i]->intact()) << "rank " << rank << ": " << made[i].text();
            }
        });
    for (std::thread &thread : threads)
        thread.join();
}

TEST(FarLanes, CollectivesOnTwoStreams) {
    for (const int ranks : {2, 3})
        run_collectives(ranks, uint64_t{450'000}, 40, 60'000);
}

TEST(FarLanes, CollectivesOfOnePieceEach) {
    run_collectives(2, uint64_t{4} << 20, 60, 2'000);
}

/// Collectives of all and of the ranks of a place, by turns on one stream.
TEST(FarLanes, CollectivesAcrossHosts) {
    constexpr int kRanks = 4;
    constexpr size_t kCount = 150'001;
    Meeting all(kRanks);
    Meeting places[2] = {Meeting(2), Meeting(2)};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank)
        threads.emplace_back([&, rank] {
            const Tiers tiers{2, 2, rank / 2, rank % 2};
            Rank self(all, rank, kRanks, uint64_t{1} << 20, tiers);
            ASSERT_NE(self.layout.slot_bytes, 0U);
            self.host.across = &places[tiers.place];
            self.host.place_across = tiers.host;
            HostStream stream;
            std::vector<int32_t> data(kCount, rank + 1), blocks(4 * kCount, -1);
            for (int turn = 0; turn < 3; ++turn) {
                ASSERT_TRUE(self.lanes->compare(static_cast<uint64_t>(turn)).ok());
                const Operation sum{Collective::allreduce, data.data(), data.data(), kCount, FLX_INT32, FLX_SUM, 0};
                ASSERT_TRUE(self.lanes->enqueue_across(sum, 0, stream).ok());
                ASSERT_TRUE(self.lanes->enqueue(sum, stream).ok());
            }
            const Operation gather{
                Collective::allgather, data.data(), blocks.data(), 2 * kCount, FLX_INT32, FLX_SUM, 0};
            ASSERT_TRUE(self.lanes->enqueue_across(gather, 3 * kCount, stream).ok());
            stream.synchronize();
            wait_for(*self.lanes);
            EXPECT_TRUE(self.lanes->failure().ok()) << self.lanes->failure().sentence();
            // Sums of places 0 and 1 are 4 and 6, so that of all is twice both.
            EXPECT_EQ(data, std::vector<int32_t>(kCount, 20 * 2 * 4 * 2 * 4));
            EXPECT_EQ(blocks[kCount - 1], data[0]);
            EXPECT_EQ(blocks[kCount], -1);
            EXPECT_EQ(blocks[3 * kCount - 1], -1);
            EXPECT_EQ(blocks[3 * kCount], data[0]);
        });
    for (std::thread &thread : threads)
        thread.join();
}

/// Though no stream comes there: it might wait for a rank that never does.
TEST(FarLanes, CallsThatDifferAreFoundAtOnce) {
    Meeting meeting(2);
    Rank a(meeting, 0, 2, 300'000);
    Rank b(meeting, 1, 2, 300'000);
    for (int turn = 0; turn < 20; ++turn)
        for (Rank *rank : {&a, &b})
            ASSERT_TRUE(rank->lanes->compare(static_cast<uint64_t>(turn)).ok());
    wait_for(*a.lanes);
    wait_for(*b.lanes);
    EXPECT_TRUE(a.lanes->failure().ok() && b.lanes->failure().ok());
    ASSERT_TRUE(a.lanes->compare(7).ok());
    ASSERT_TRUE(b.lanes->compare(8).ok());
    for (Rank *rank : {&a, &b}) {
        wait_for(*rank->lanes);
        EXPECT_EQ(rank->lanes->failure().code(), FLX_ERR_MISMATCH);
        EXPECT_EQ(rank->lanes->failure().fault(), Fault::calls_differ);
        EXPECT_NE(rank->lanes->failure().sentence().find("another collective"), std::string::npos);
    }
}

/// What is put on a stream waits for what was there before, and what comes later waits for it; the call does not.
TEST(FarLanes, KeepsTheOrderOfItsStream) {
    Meeting meeting(2);
    Rank a(meeting, 0, 2, 300'000);
    Rank b(meeting, 1, 2, 300'000);
    std::vector<int32_t> of_a(200'000, 1), of_b(200'000, 2);
    HostStream stream_a, stream_b;
    std::atomic<bool> go{false};
    stream_a.run([&] {
        while (!go)
            std::this_thread::yield();
        std::fill(of_a.begin(), of_a.end(), 5);
    });
    int32_t last = 0;
    for (auto [rank, data, stream] : {std::tuple(&a, &of_a, &stream_a), std::tuple(&b, &of_b, &stream_b)})
        ASSERT_TRUE(
            rank->lanes
                ->enqueue({Collective::allreduce, data->data(), data->data(), data->size(), FLX_INT32, FLX_SUM, 0},
                          *stream)
                .ok());
    stream_a.run([&] { last = of_a.back(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(a.host.begun, 0) << "begins before the stream comes there";
    EXPECT_TRUE(a.lanes->busy());
    go = true;
    stream_a.synchronize();
    stream_b.synchronize();
    EXPECT_EQ(last, 7);
    EXPECT_EQ(of_b, std::vector<int32_t>(200'000, 7));
    EXPECT_GT(a.host.begun, 4) << "was not cut into pieces";
}

/// Messages both ways, large and small, each on a stream of its own lane, in any order on either side.
TEST(FarLanes, MessagesDoNotWaitForEachOther) {
    constexpr int kRanks = 3;
    Meeting meeting(kRanks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank)
        threads.emplace_back([&, rank] {
            Rank self(meeting, rank, kRanks, uint64_t{1} << 19);
            ASSERT_NE(self.layout.slot_bytes, 0U);
            std::map<uint32_t, std::unique_ptr<HostStream>> streams;
            const auto value = [](int from, int to, int k, size_t i) {
                return static_cast<char>(from * 31 + to * 17 + k * 7 + static_cast<int>(i % 113));
            };
            const auto length = [](int from, int to, int k) {
                return static_cast<size_t>(1 + (from * 7 + to * 3 + k * 11) % 5 * 20'011);
            };
            std::vector<std::vector<char>> memory;
            std::vector<Message> all;
            std::vector<std::tuple<int, int, size_t>> received;
            for (int k = 0; k < 6; ++k)
                for (int peer = 0; peer < kRanks; ++peer) {
                    if (peer == rank)
                        continue;
                    for (const bool sends : {rank % 2 == 0, rank % 2 != 0}) {
                        const int from = sends ? rank : peer;
                        const int to = sends ? peer : rank;
                        auto &data = memory.emplace_back(length(from, to, k));
                        for (size_t i = 0; sends && i < data.size(); ++i)
                            data[i] = value(from, to, k, i);
                        if (!sends)
                            received.emplace_back(from, k, memory.size() - 1);
                        all.push_back({data.data(), data.size(), peer, sends});
                    }
                }
            for (const Message &message : all) {
                auto &stream = streams[FarLanes::lane_of(message)];
                if (stream == nullptr)
                    stream = std::make_unique<HostStream>();
                ASSERT_TRUE(self.lanes->enqueue(message, *stream).ok());
            }
            for (auto &entry : streams)
                entry.second->synchronize();
            wait_for(*self.lanes);
            EXPECT_TRUE(self.lanes->failure().ok()) << self.lanes->failure().sentence();
            for (const auto &[from, k, index] : received)
                for (size_t i = 0; i < memory[index].size(); ++i)
                    ASSERT_EQ(memory[index][i], value(from, rank, k, i)) << "from " << from << " to " << rank;
        });
    for (std::thread &thread : threads)
        thread.join();
}

/// A receiver that expects another length, of as many pieces or not.
TEST(FarLanes, AMessageOfAnotherLengthIsAnError) {
    Meeting meeting(2);
    Rank a(meeting, 0, 2, uint64_t{1} << 19);
    Rank b(meeting, 1, 2, uint64_t{1} << 19);
    const uint64_t piece = a.layout.message_bytes;
    std::vector<char> from(3 * piece), to(3 * piece);
    HostStream out, in;
    ASSERT_TRUE(a.lanes->enqueue(Message{from.data(), 2 * piece + 100, 1, true}, out).ok());
    ASSERT_TRUE(b.lanes->enqueue(Message{to.data(), 2 * piece + 90, 0, false}, in).ok());
    in.synchronize();  // is let go
    const Status why = b.lanes->failure();
    EXPECT_EQ(why.code(), FLX_ERR_MISMATCH);
    EXPECT_NE(why.sentence().find(std::to_string(2 * piece + 100)), std::string::npos) << why.sentence();
    EXPECT_NE(why.sentence().find("rank 0 "), std::string::npos) << why.sentence();
    a.lanes->give_up(fail(Fault::calls_differ, "heard of it"));
    out.synchronize();
}

/// After an error all streams are let go, those too that come to wait only then, and calls say why.
TEST(FarLanes, AnErrorLetsStreamsGo) {
    Meeting meeting(2);
    Rank a(meeting, 0, 2, 300'000);
    std::vector<int32_t> data(100'000);
    HostStream stream, other;
    std::atomic<bool> go{false};
    other.run([&] {
        while (!go)
            std::this_thread::yield();
    });
    const Operation call{Collective::allreduce, data.data(), data.data(), data.size(), FLX_INT32, FLX_SUM, 0};
    ASSERT_TRUE(a.lanes->enqueue(call, stream).ok());  // the other rank never comes
    ASSERT_TRUE(a.lanes->enqueue(call, other).ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    a.host.broken = true;
    stream.synchronize();
    go = true;
    other.synchronize();
    EXPECT_FALSE(a.lanes->busy());
    EXPECT_EQ(a.lanes->failure().code(), FLX_ERR_PEER);
    EXPECT_EQ(a.lanes->enqueue(call, stream).code(), FLX_ERR_PEER);
    a.lanes->stop();
    EXPECT_EQ(a.host.given_up, 1) << "others do not hear of it";
}

}  // namespace
}  // namespace flx::cuda

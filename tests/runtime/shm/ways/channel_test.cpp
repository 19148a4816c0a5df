/// The shared-memory link, with ranks as threads or one thread for both sides: rings that wrap, in any order of
/// release, short chunks among long ones, and chunks that are fetched from where they lie.
#include "runtime/shm/ways/channel.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <random>
#include <set>
#include <vector>

#include "runtime/shm/memory/ring.h"
#include "tests/runtime/link/ranks.h"
#include "tests/runtime/shm/ways/shm_calls.h"

namespace flx::shm {
namespace {

using testing::kYield;
using testing::run_ranks;
using testing::TestWatch;

/// As many numbers in a row as a ring has places lie apart, the next on the first one's place, and no two in a row side
/// by side.
TEST(Ring, HasAPlaceForEachNumber) {
    for (uint64_t places = 8; places <= kMostPlaces; places *= 2)
        for (const uint64_t first : {uint64_t{0}, uint64_t{5}, uint64_t{1} << 40, UINT64_MAX - 200}) {
            std::set<uint64_t> taken;
            for (uint64_t number = first; number < first + places; ++number) {
                const uint64_t place = place_in(places, number);
                EXPECT_LT(place, places);
                EXPECT_TRUE(taken.insert(place).second) << places << " places, number " << number;
                EXPECT_EQ(place, place_in(places, number + places));
                EXPECT_NE(place + 1, place_in(places, number + 1));
            }
        }
}

TEST(ChannelShape, StaysWithinItsBudget) {
    for (uint32_t ranks = 2; ranks <= 128; ++ranks) {
        for (const size_t budget : {size_t{1}, size_t{100'000}, size_t{1} << 20, size_t{4} << 20, size_t{64} << 20}) {
            const ChannelShape shape = ChannelShape::fit(ranks, budget);
            const size_t payload = size_t{ranks - 1} * shape.slots * shape.slot_bytes;
            const size_t least = size_t{ranks - 1} * 2 * kMaxCellBytes;
            EXPECT_EQ(shape.ranks, ranks);
            EXPECT_GE(shape.slots, 2U);
            EXPECT_GE(shape.slot_bytes, kMaxCellBytes);
            EXPECT_LE(payload, std::max(budget, least)) << ranks << " ranks, " << budget << " bytes";
            EXPECT_GE(shape.bytes(), ranks * payload);
            EXPECT_LE(shape.bytes(), ranks * payload + ranks * payload / 25 + 128)
                << "control words and short slots take little";
        }
    }
    EXPECT_GT(ChannelShape::fit(2, size_t{64} << 20).slots, 2U) << "a large budget gives more than the least";
}

/// Memory for `shape`, aligned to a cache line.
struct Rings {
    explicit Rings(const ChannelShape &shape) : owner(shape.bytes() + 128) {
        base = owner.data() + (64 - reinterpret_cast<uintptr_t>(owner.data()) % 64) % 64;
    }
    std::vector<std::byte> owner;
    std::byte *base;
};

ChunkHeader header_of(uint32_t number, uint32_t bytes) {
    return {number, 7, number * 3, 0, number, 1, 2, bytes, 0};
}

std::vector<std::byte> content(uint32_t number, int from, int to, size_t bytes) {
    std::minstd_rand random(number * 100 + static_cast<uint32_t>(from * 10 + to) + 1);
    std::vector<std::byte> data(bytes);
    for (std::byte &byte : data)
        byte = static_cast<std::byte>(random() >> 8);
    return data;
}

TEST(Channel, IsBusyWhenFullAndReusesSlotsInAnyOrderOfRelease) {
    const ChannelShape shape{2, 4, kMaxCellBytes};
    Rings rings(shape);
    // Rank 1 of the communicator is on another host.
    Channel left(rings.base, shape, 0, {0, -1, 1}), right(rings.base, shape, 1, {0, -1, 1});
    EXPECT_TRUE(left.reaches(2));
    EXPECT_FALSE(left.reaches(1));
    EXPECT_FALSE(left.reaches(0)) << "itself";
    EXPECT_EQ(left.max_chunk(), shape.slot_bytes);
    for (const size_t bytes : {size_t{1}, size_t{5000}, size_t{1} << 24}) {
        EXPECT_GT(left.good_chunk(bytes), 0U);
        EXPECT_LE(left.good_chunk(bytes), left.max_chunk());
    }

    const auto send = [&](uint32_t number) {
        auto data = content(number, 0, 2, 1000 + number);
        const SendResult result = left.send(2, header_of(number, static_cast<uint32_t>(data.size())), data.data());
        std::fill(data.begin(), data.end(), std::byte{0});  // the source may be reused at once
        return result;
    };
    const auto receive = [&](uint32_t number) {
        Arrival arrival;
        EXPECT_TRUE(right.receive(0, arrival));
        EXPECT_EQ(arrival.peer, 0);
        const ChunkHeader expected = header_of(number, 1000 + number);
        EXPECT_EQ(std::memcmp(&arrival.header, &expected, sizeof expected), 0);
        return arrival;
    };
    const auto right_content = [&](const Arrival &arrival) {
        const auto expected = content(static_cast<uint32_t>(arrival.header.sequence), 0, 2, arrival.header.bytes);
        return std::memcmp(arrival.data, expected.data(), expected.size()) == 0;
    };

    Arrival none;
    EXPECT_FALSE(right.receive(0, none));
    for (uint32_t number = 0; number < 4; ++number)
        ASSERT_EQ(send(number), SendResult::copied);
    EXPECT_EQ(send(4), SendResult::busy);
    std::vector<Arrival> held;
    for (uint32_t number = 0; number < 4; ++number)
        held.push_back(receive(number));
    EXPECT_FALSE(right.receive(0, none));
    EXPECT_EQ(send(4), SendResult::busy) << "held by the receiver";
    right.release(held[2]);
    EXPECT_EQ(send(4), SendResult::busy) << "slots are filled in turn, and the next one is still held";
    right.release(held[0]);
    EXPECT_EQ(send(4), SendResult::copied);
    EXPECT_EQ(send(5), SendResult::busy);
    EXPECT_TRUE(right_content(held[1]));
    EXPECT_TRUE(right_content(held[3])) << "unchanged while held, though others were reused";
    right.release(held[3]);
    right.release(held[1]);
    EXPECT_EQ(send(5), SendResult::copied);
    EXPECT_EQ(send(6), SendResult::copied);
    EXPECT_EQ(send(7), SendResult::copied);
    EXPECT_EQ(send(8), SendResult::busy);
    for (uint32_t number = 4; number < 8; ++number) {
        const Arrival arrival = receive(number);
        EXPECT_TRUE(right_content(arrival)) << number;
        right.release(arrival);
    }
    EXPECT_EQ(left.counters(2).chunks, 8U);
    EXPECT_EQ(left.counters(2).bytes, 8U * 1000 + 28);
    std::vector<int> counted;
    EXPECT_TRUE(left.take_counted(counted));
    EXPECT_EQ(counted, std::vector<int>{2});
    EXPECT_TRUE(left.take_counted(counted));
    EXPECT_TRUE(counted.empty());
    EXPECT_TRUE(right.take_counted(counted));
    EXPECT_TRUE(counted.empty()) << "it only received";
    EXPECT_FALSE(left.receive(2, none)) << "nothing went the other way";
}

/// Both sides by one thread.
struct Ends {
    explicit Ends(uint32_t shorts = 64)
        : shape{2, 4, kMaxCellBytes, shorts},
          rings(shape),
          left(rings.base, shape, 0, {0, 1}),
          right(rings.base, shape, 1, {0, 1}) {}

    SendResult send(uint32_t number, size_t bytes) {
        auto data = content(number, 0, 1, bytes);
        const SendResult result = left.send(1, header_of(number, static_cast<uint32_t>(bytes)), data.data());
        std::fill(data.begin(), data.end(), std::byte{0});  // the source may be reused at once
        return result;
    }
    [[nodiscard]] static bool right_content(const Arrival &arrival) {
        const auto expected = content(static_cast<uint32_t>(arrival.header.sequence), 0, 1, arrival.header.bytes);
        return expected.empty() || std::memcmp(arrival.data, expected.data(), expected.size()) == 0;
    }

    ChannelShape shape;
    Rings rings;
    Channel left, right;
};

/// How many short chunks are taken, from `number` on, until there is no room.
uint32_t fill(Ends &ends, uint32_t number) {
    uint32_t sent = 0;
    while (sent < 1000 && ends.send(number + sent, sent % 9) == SendResult::copied)
        ++sent;
    return sent;
}

class ShortChunks : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Room, ShortChunks, ::testing::Values(8, 64));

TEST_P(ShortChunks, HaveRoomOfTheirOwn) {
    Ends ends(GetParam());
    const uint32_t room = fill(ends, 0);
    EXPECT_EQ(room, GetParam());
    EXPECT_EQ(ends.send(room, 5000), SendResult::copied) << "longer ones have slots";
    std::vector<Arrival> held(room + 1);
    for (uint32_t number = 0; number <= room; ++number) {
        ASSERT_TRUE(ends.right.receive(0, held[number]));
        ASSERT_EQ(held[number].header.sequence, number) << "in the order of sending";
    }
    Arrival none;
    EXPECT_FALSE(ends.right.receive(0, none));
    EXPECT_EQ(fill(ends, room + 1), 0U) << "held by the receiver";

    // In any order, but for the first: what follows it cannot be used before.
    std::vector<uint32_t> order(room - 1);
    for (uint32_t i = 0; i < order.size(); ++i)
        order[i] = i + 1;
    std::shuffle(order.begin(), order.end(), std::minstd_rand(3));
    for (const uint32_t number : order) {
        EXPECT_TRUE(Ends::right_content(held[number])) << number;
        ends.right.release(held[number]);
    }
    EXPECT_EQ(fill(ends, room + 1), 0U) << "the first is held";
    EXPECT_TRUE(Ends::right_content(held[0]));
    ends.right.release(held[0]);
    EXPECT_TRUE(Ends::right_content(held[room]));
    ends.right.release(held[room]);
    EXPECT_EQ(fill(ends, room + 1), room);
}

/// The order holds between both rings, and room is given back in time, far beyond the length of either.
TEST_P(ShortChunks, KeepTheirOrderAmongLongOnes) {
    Ends ends(GetParam());
    std::mt19937 random(11);
    std::vector<Arrival> held;
    uint32_t sent = 0;
    uint32_t received = 0;
    size_t stalls = 0;
    while (received < 20'000) {
        const size_t bytes = std::array<size_t, 6>{0, 8, 80, 81, 300, 6000}[random() % 6];
        const bool busy = ends.send(sent, bytes) == SendResult::busy;
        sent += busy ? 0 : 1;
        stalls = busy ? stalls + 1 : 0;
        Arrival arrival;
        if (random() % 3 != 0 && ends.right.receive(0, arrival)) {
            ASSERT_EQ(arrival.header.sequence, received);
            ASSERT_EQ(arrival.peer, 0);
            ++received;
            held.push_back(arrival);
        }
        while (!held.empty() && (held.size() > 3 || random() % 2 == 0)) {
            std::swap(held[random() % held.size()], held.back());
            ASSERT_TRUE(Ends::right_content(held.back())) << held.back().header.sequence;
            ends.right.release(held.back());
            held.pop_back();
        }
        ASSERT_LT(stalls, 1000U) << "after " << sent << " chunks";
    }
    EXPECT_EQ(ends.left.counters(1).chunks, sent);
}

/// What is exposed is read where it lies, is complete when the receiver has released it, and is nobody's any more once
/// it was withdrawn.
TEST(Channel, ExposedChunksAreFetched) {
    const ChannelShape shape{2, 2, kMaxCellBytes};
    Rings rings(shape);
    std::atomic<int> failed{0};
    std::vector<std::byte> source(3 << 20);
    for (size_t i = 0; i < source.size(); ++i)
        source[i] = static_cast<std::byte>(i * 7 + i / 1000);
    std::atomic<int> stage{0};
    testing::run_group(2, [&](Bootstrap &bootstrap) {
        std::unique_ptr<PeerMemory> memory;
        PeerMemory::Why why;
        ASSERT_TRUE(PeerMemory::make(bootstrap, {getpid(), getpid()}, memory, why).ok());
        ASSERT_NE(memory, nullptr) << why.not_by_kernel;
        Channel channel(rings.base, shape, bootstrap.rank(), {0, 1});
        EXPECT_EQ(channel.max_exposed(1 - bootstrap.rank(), source.data(), source.size()), 0U) << "not wired yet";
        channel.fetch_through(memory.get());
        TestWatch watch(failed);
        const auto await = [&](int value) {
            Waiter waiter(kYield, watch);
            while (stage != value)
                ASSERT_TRUE(waiter.pause().ok());
        };
        Completion completion;
        if (bootstrap.rank() == 0) {
            EXPECT_EQ(channel.max_exposed(1, source.data(), 64), 0U) << "too short to pay";
            const size_t chunk = channel.max_exposed(1, source.data(), source.size());
            ASSERT_GT(chunk, size_t{shape.slot_bytes});
            ASSERT_LE(2 * chunk, source.size());
            const auto header = [&](uint32_t number) { return header_of(number, static_cast<uint32_t>(chunk)); };
            EXPECT_EQ(channel.expose(1, header(1), source.data()), SendResult::in_flight);
            EXPECT_EQ(channel.expose(1, header(2), source.data() + chunk), SendResult::in_flight);
            EXPECT_EQ(channel.expose(1, header(3), source.data()), SendResult::busy);
            EXPECT_EQ(channel.outstanding(), 2U);
            EXPECT_FALSE(channel.completed(completion));
            stage = 1;
            await(2);
            ASSERT_TRUE(channel.completed(completion));
            EXPECT_EQ(completion.header.sequence, 2U) << "released first";
            EXPECT_EQ(completion.peer, 1);
            EXPECT_FALSE(channel.completed(completion));
            EXPECT_EQ(channel.counters(1).bytes, chunk);
            std::vector<int> counted;
            EXPECT_TRUE(channel.take_counted(counted));
            EXPECT_EQ(counted, std::vector<int>{1});
            EXPECT_EQ(channel.expose(1, header(3), source.data()), SendResult::busy) << "slots are filled in turn";
            stage = 3;
            await(4);
            EXPECT_EQ(channel.expose(1, header(3), source.data()), SendResult::in_flight);
            ASSERT_TRUE(channel.completed(completion)) << "though its slot was used again";
            EXPECT_EQ(completion.header.sequence, 1U);
            EXPECT_FALSE(channel.completed(completion));
            channel.withdraw();
            stage = 5;
            await(6);
        } else {
            await(1);
            Arrival first, second, third;
            ASSERT_TRUE(channel.receive(0, first));
            ASSERT_TRUE(channel.receive(0, second));
            EXPECT_EQ(first.data, nullptr);
            const size_t chunk = second.header.bytes;
            std::vector<std::byte> to(chunk);
            ASSERT_TRUE(channel.fetch(second, 100, to.data() + 100, chunk - 100).ok());
            ASSERT_TRUE(channel.fetch(second, 0, to.data(), 100).ok());
            EXPECT_EQ(std::memcmp(to.data(), source.data() + chunk, chunk), 0);
            channel.release(second);
            stage = 2;
            await(3);
            ASSERT_TRUE(channel.fetch(first, 0, to.data(), chunk).ok());
            EXPECT_EQ(std::memcmp(to.data(), source.data(), chunk), 0);
            channel.release(first);
            stage = 4;
            await(5);
            ASSERT_TRUE(channel.receive(0, third));
            EXPECT_EQ(channel.fetch(third, 0, to.data(), chunk).fault(), Fault::peer_memory_gone);
            stage = 6;
        }
    });
}

/// All pairs at once, many times around each ring, chunks held for a while and released in random order.
TEST(Channel, CarriesAllPairsAtOnce) {
    constexpr int kRanks = 4;
    constexpr uint32_t kChunks = 150;
    const ChannelShape shape{kRanks, 4, kMaxCellBytes};
    Rings rings(shape);
    std::atomic<int> failed{0};
    run_ranks(kRanks, [&](int rank) {
        Channel channel(rings.base, shape, rank, {0, 1, 2, 3});
        std::minstd_rand random(static_cast<uint32_t>(rank) + 17);
        TestWatch watch(failed);
        Waiter waiter(kYield, watch);
        std::vector<uint32_t> sent(kRanks), received(kRanks);
        std::vector<Arrival> held;
        const auto bytes = [](uint32_t number) { return number % 3 == 0 ? number % 90 : number * 211 % 6000; };
        uint32_t left = 2 * kChunks * (kRanks - 1);
        while (left != 0 || !held.empty()) {
            const uint32_t before = left;
            for (int peer = 0; peer < kRanks; ++peer) {
                if (peer == rank)
                    continue;
                if (sent[peer] < kChunks) {
                    const auto data = content(sent[peer], rank, peer, bytes(sent[peer]));
                    const auto size = static_cast<uint32_t>(data.size());
                    if (channel.send(peer, header_of(sent[peer], size), data.data()) == SendResult::copied)
                        ++sent[peer], --left;
                }
                Arrival arrival;
                if (channel.receive(peer, arrival)) {
                    ASSERT_EQ(arrival.header.sequence, received[peer]) << "oldest first";
                    held.push_back(arrival);
                    ++received[peer], --left;
                }
            }
            if (!held.empty()) {
                std::swap(held[random() % held.size()], held.back());
                const Arrival &arrival = held.back();
                const auto number = static_cast<uint32_t>(arrival.header.sequence);
                const auto expected = content(number, arrival.peer, rank, bytes(number));
                ASSERT_EQ(arrival.header.bytes, expected.size());
                ASSERT_TRUE(std::equal(expected.begin(), expected.end(), arrival.data));
                channel.release(arrival);
                held.pop_back();
                waiter.moved();
            } else if (left != before) {
                waiter.moved();
            } else {
                const Status status = waiter.pause();
                ASSERT_TRUE(status.ok()) << status.sentence();
            }
        }
    });
}

}  // namespace
}  // namespace flx::shm

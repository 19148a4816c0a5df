#include "ucx_glue/rails.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <new>
#include <thread>

#include "tests/ucx_glue/traffic.h"

namespace {
std::atomic<uint64_t> allocations;
}

// UCX is C and has pools of its own: these count what FLX allocates.
[[gnu::noinline]] void *operator new(size_t bytes) {
    ++allocations;
    if (void *memory = std::malloc(bytes))
        return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void *memory) noexcept {
    std::free(memory);
}
[[gnu::noinline]] void operator delete(void *memory, size_t) noexcept {
    std::free(memory);
}

namespace flx::ucx {

/// For GoogleTest's messages.
static void PrintTo(const RailSpec &spec, std::ostream *out) {
    *out << spec.device << " " << spec.tls;
}

namespace {

using namespace std::chrono_literals;
using test::Traffic;

constexpr double kDeadlineS = 30;
const RailSpec kTcp{"lo", "lo", "tcp", false};
const RailSpec kPut{"ucx-shm", "memory", "posix,cma", true};
const RailSpec kPutSysv{"ucx-shm", "memory", "sysv", true};
const RailSpec kShmEager{"ucx-shm", "memory", "posix,cma", false};

/// Until `done`, giving the processor away; false after `limit`.
bool wait_for(const std::function<bool()> &done, std::chrono::milliseconds limit = 10s) {
    auto end = std::chrono::steady_clock::now() + limit;
    while (!done()) {
        if (std::chrono::steady_clock::now() > end)
            return false;
        sched_yield();
    }
    return true;
}

/// Two processes' rails in one process: process and rank 0 is `a`, 1 is `b`.
struct Pair {
    std::unique_ptr<Rails> a;
    std::unique_ptr<Rails> b;

    explicit Pair(const RailSpec &spec, const RailOptions &options = {}) {
        a = Rails::open({&spec, 1}, 0xa11ce, options);
        b = Rails::open({&spec, 1}, 0xb0b, options);
    }
    bool open() const { return a->count() == 1 && b->count() == 1; }
    void connect() const {
        EXPECT_TRUE(a->connect(0, 1, 0xb0b, b->address(0)).ok());
        EXPECT_TRUE(b->connect(0, 0, 0xa11ce, a->address(0)).ok());
    }
    std::unique_ptr<Link> link_a(uint32_t comm) const { return a->link(0, comm, {-1, 1}, kDeadlineS); }
    std::unique_ptr<Link> link_b(uint32_t comm) const { return b->link(0, comm, {0, -1}, kDeadlineS); }
};

/// Until all of both is there, or something is wrong.
void carry(Link &a, Traffic &ab, Link &b, Traffic &ba) {
    EXPECT_TRUE(wait_for([&] {
        ab.step();
        ba.step();
        a.progress();
        b.progress();
        return (ab.done() && ba.done()) || ab.errors() + ba.errors() > 0;
    })) << "a: "
        << ab.state() << "; b: " << ba.state();
}

ChunkHeader header_of(uint32_t comm, uint32_t block, size_t bytes) {
    ChunkHeader header{};
    header.comm = comm;
    header.block = block;
    header.cells = 1;
    header.bytes = static_cast<uint32_t>(bytes);
    return header;
}

class RailsOver : public ::testing::TestWithParam<RailSpec> {};
INSTANTIATE_TEST_SUITE_P(Transports, RailsOver, ::testing::Values(kTcp, kPut, kPutSysv, kShmEager),
                         [](const auto &info) {
                             return std::string(info.param.tls == "tcp"    ? "tcp"
                                                : info.param.tls == "sysv" ? "put_sysv"
                                                : info.param.rma           ? "put_posix"
                                                                           : "eager_posix");
                         });

/// What is sent soon comes in the order of sending, also before and behind what is sent at once.
TEST_P(RailsOver, ChunksThatGoTogetherKeepTheirOrder) {
    Pair pair(GetParam());
    ASSERT_TRUE(pair.open()) << pair.a->problems()[0].second;
    pair.connect();
    auto a = pair.link_a(3);
    auto b = pair.link_b(3);
    constexpr uint32_t kChunks = 200;
    constexpr uint32_t kEachAtOnce = 45;  // more than one message takes
    std::vector<std::byte> data(6000);
    uint32_t received = 0;
    const auto receive = [&] {
        a->progress();
        b->progress();
        Arrival arrival;
        while (b->receive(0, arrival)) {
            EXPECT_EQ(arrival.header.block, received);
            EXPECT_EQ(arrival.data[0], static_cast<std::byte>(arrival.header.block));
            EXPECT_EQ(arrival.data[arrival.header.bytes - 1], static_cast<std::byte>(arrival.header.block));
            ++received;
            b->release(arrival);
        }
    };
    for (uint32_t sent = 0; sent < kChunks;) {
        const size_t bytes = 1 + sent * 7919 % data.size();
        std::fill(data.begin(), data.end(), static_cast<std::byte>(sent));
        const ChunkHeader header = header_of(3, sent, bytes);
        const bool alone = sent % kEachAtOnce == kEachAtOnce - 1 && bytes <= 4096;
        const SendResult result = alone ? a->send(1, header, data.data()) : a->send_soon(1, header, data.data());
        ASSERT_NE(result, SendResult::failed);
        // Short ones are copied, so `data` may change at once.
        ASSERT_TRUE(result == SendResult::busy || result == SendResult::copied);
        if (result == SendResult::copied && ++sent % kEachAtOnce != 0)
            continue;
        a->flush();
        receive();
    }
    a->flush();
    EXPECT_TRUE(wait_for([&] {
        receive();
        return received == kChunks;
    })) << received;
    EXPECT_TRUE(pair.a->problems().empty());
}

TEST_P(RailsOver, RandomChunksInBothDirections) {
    RailOptions options;
    Pair pair(GetParam(), options);
    ASSERT_TRUE(pair.open()) << pair.a->problems()[0].second;
    pair.connect();
    auto a = pair.link_a(3);
    auto b = pair.link_b(3);
    EXPECT_EQ(a->name(), GetParam().name);
    EXPECT_TRUE(a->reaches(1));
    EXPECT_FALSE(a->reaches(0));
    Traffic::Options traffic{.chunks = 400, .window = options.window_bytes};
    Traffic ab(*a, 3, 0, 1, traffic);
    Traffic ba(*b, 3, 1, 0, traffic);
    carry(*a, ab, *b, ba);
    ab.check_end();
    ba.check_end();
    EXPECT_EQ(ab.errors(), 0u) << ab.first_error();
    EXPECT_EQ(ba.errors(), 0u) << ba.first_error();
    EXPECT_GT(ab.copied(), 0u);
    EXPECT_GT(ab.flown(), 0u);
    EXPECT_TRUE(a->error(1).ok());
    EXPECT_TRUE(pair.a->problems().empty()) << pair.a->problems()[0].second;
    // Chunks that were copied may be acknowledged last.
    EXPECT_TRUE(wait_for([&] {
        pair.a->progress();
        pair.b->progress();
        return pair.a->flushed() && pair.b->flushed() && a->outstanding() == 0 && b->outstanding() == 0;
    }));
}

/// What it owes is sent first, and meanwhile chunks may come of a communicator that is gone.
TEST_P(RailsOver, WhatComesWhileItClosesIsDropped) {
    Pair pair(GetParam());
    ASSERT_TRUE(pair.open()) << pair.a->problems()[0].second;
    pair.connect();
    auto a = pair.link_a(3);
    auto b = pair.link_b(3);
    std::vector<std::byte> data(100);
    ASSERT_EQ(a->send(1, header_of(3, 0, data.size()), data.data()), SendResult::copied);
    Arrival arrival;
    ASSERT_TRUE(wait_for([&] {
        a->progress();
        b->progress();
        return b->receive(0, arrival);
    }));
    b->release(arrival);
    EXPECT_FALSE(pair.b->flushed()) << "its acknowledgement may wait for a chunk to ride on";
    b.reset();
    for (uint32_t block = 1; block < 10; ++block)
        ASSERT_EQ(a->send(1, header_of(3, block, data.size()), data.data()), SendResult::copied);
    for (int turn = 0; turn < 100; ++turn)
        a->progress();
    pair.b.reset();
}

TEST_P(RailsOver, SmallWindowIsRespectedAndNeverStalls) {
    RailOptions options;
    options.window_bytes = 64 << 10;  // smaller than a chunk: one at a time
    Pair pair(GetParam(), options);
    ASSERT_TRUE(pair.open());
    pair.connect();
    auto a = pair.link_a(1);
    auto b = pair.link_b(1);
    Traffic::Options traffic{.chunks = 100, .least = 20000, .window = options.window_bytes, .hold = 2};
    Traffic ab(*a, 1, 0, 1, traffic);
    Traffic ba(*b, 1, 1, 0, traffic);
    carry(*a, ab, *b, ba);
    EXPECT_EQ(ab.errors() + ba.errors(), 0u) << ab.first_error() << ba.first_error();
}

TEST_P(RailsOver, TwoCommunicatorsShareARail) {
    Pair pair(GetParam());
    ASSERT_TRUE(pair.open());
    pair.connect();
    std::vector<std::unique_ptr<Link>> links;
    std::deque<Traffic> traffics;
    for (uint32_t comm : {5u, 9u}) {
        Traffic::Options traffic{.chunks = 150, .window = RailOptions().window_bytes};
        links.push_back(pair.link_a(comm));
        traffics.emplace_back(*links.back(), comm, 0, 1, traffic);
        links.push_back(pair.link_b(comm));
        traffics.emplace_back(*links.back(), comm, 1, 0, traffic);
    }
    EXPECT_TRUE(wait_for([&] {
        bool done = true;
        for (size_t i = 0; i < traffics.size(); ++i) {
            traffics[i].step();
            links[i]->progress();
            done &= traffics[i].done();
        }
        return done;
    }));
    for (Traffic &traffic : traffics) {
        traffic.check_end();
        EXPECT_EQ(traffic.errors(), 0u) << traffic.first_error();
    }
}

/// Its receiver may be busy with the other communicator, and ask for these chunks only when that has ended.
TEST_P(RailsOver, WhatNobodyTakesFillsOnlyItsOwnCommunicatorsWindow) {
    RailOptions options;
    options.window_bytes = 256 << 10;
    Pair pair(GetParam(), options);
    ASSERT_TRUE(pair.open());
    pair.connect();
    auto early = pair.link_a(1);
    auto late = pair.link_b(1);
    const std::vector<std::byte> data(128 << 10);
    size_t sent = 0;
    wait_for(
        [&] {
            if (early->send(1, header_of(1, 0, data.size()), data.data()) == SendResult::in_flight)
                ++sent;
            early->progress();
            late->progress();
            return false;
        },
        100ms);
    EXPECT_EQ(sent, 2u);
    auto a = pair.link_a(2);
    auto b = pair.link_b(2);
    Traffic::Options traffic{.chunks = 50, .window = options.window_bytes};
    Traffic ab(*a, 2, 0, 1, traffic);
    Traffic ba(*b, 2, 1, 0, traffic);
    carry(*a, ab, *b, ba);
    EXPECT_EQ(ab.errors() + ba.errors(), 0u) << ab.first_error() << ba.first_error();
    EXPECT_EQ(early->unacknowledged(1), sent * data.size());
}

/// What a receiver tells comes with the acknowledgement of a chunk, and is another communicator's no business.
TEST_P(RailsOver, CreditsComeWithAcknowledgements) {
    Pair pair(GetParam());
    ASSERT_TRUE(pair.open());
    pair.connect();
    auto a = pair.link_a(5);
    auto b = pair.link_b(5);
    auto other = pair.link_a(9);
    std::vector<std::byte> large(100000);
    for (const uint16_t links : {0x8002, 0x0004, 0x0000}) {
        EXPECT_TRUE(wait_for([&] {
            a->progress();
            b->progress();
            return a->send(1, header_of(5, links, large.size()), large.data()) == SendResult::in_flight;
        }));
        bool released = false;
        Completion completion;
        EXPECT_TRUE(wait_for([&] {
            a->progress();
            b->progress();
            Arrival arrival;
            if (!released && b->receive(0, arrival)) {
                b->tell(0, links);
                b->release(arrival);
                released = true;
            }
            return a->completed(completion);
        }));
        EXPECT_EQ(a->told(1), links);
        EXPECT_EQ(other->told(1), 0);
    }
}

TEST_P(RailsOver, ChunksBeforeTheLinkAreKept) {
    Pair pair(GetParam());
    ASSERT_TRUE(pair.open());
    pair.connect();
    auto a = pair.link_a(2);
    auto other = pair.link_b(77);  // B progresses its rail for another communicator
    std::vector<std::byte> large(100000);
    for (size_t i = 0; i < large.size(); ++i)
        large[i] = test::content(2, 0, 1, i);
    std::byte small = test::content(2, 0, 0, 0);
    EXPECT_EQ(a->send(1, header_of(2, 0, 1), &small), SendResult::copied);
    SendResult result = SendResult::busy;
    EXPECT_TRUE(wait_for([&] {
        if (result == SendResult::busy)
            result = a->send(1, header_of(2, 1, large.size()), large.data());
        a->progress();
        other->progress();
        return result != SendResult::busy;
    }));
    EXPECT_EQ(result, SendResult::in_flight);
    EXPECT_FALSE(wait_for(
        [&] {
            a->progress();
            other->progress();
            return a->outstanding() == 0;
        },
        100ms))
        << "acknowledged before anybody took it";
    Arrival arrival;
    EXPECT_FALSE(other->receive(0, arrival));

    auto b = pair.link_b(2);
    int got = 0;
    EXPECT_TRUE(wait_for([&] {
        a->progress();
        b->progress();
        if (b->receive(0, arrival)) {
            ++got;
            EXPECT_EQ(arrival.header.comm, 2u);
            EXPECT_EQ(arrival.data[0], test::content(2, 0, arrival.header.block, 0));
            b->release(arrival);
        }
        return a->outstanding() == 0;
    }));
    EXPECT_EQ(got, 2);
    Completion completion;
    EXPECT_TRUE(a->completed(completion));
    EXPECT_EQ(completion.header.block, 1u);
    EXPECT_FALSE(a->completed(completion));
}

TEST_P(RailsOver, AHeldArrivalKeepsItsChunkUnacknowledged) {
    RailOptions options;
    options.window_bytes = 256 << 10;
    Pair pair(GetParam(), options);
    ASSERT_TRUE(pair.open());
    pair.connect();
    auto a = pair.link_a(1);
    auto b = pair.link_b(1);
    std::vector<std::byte> data(128 << 10);
    std::vector<Arrival> held;
    int taken = 0;
    wait_for(
        [&] {
            if (a->send(1, header_of(1, 0, data.size()), data.data()) == SendResult::in_flight)
                ++taken;
            a->progress();
            b->progress();
            Arrival arrival;
            if (b->receive(0, arrival))
                held.push_back(arrival);
            return false;
        },
        300ms);
    EXPECT_EQ(taken, 2);
    EXPECT_EQ(held.size(), 2u);
    EXPECT_EQ(a->unacknowledged(1), 2 * data.size());
    for (const Arrival &arrival : held)
        b->release(arrival);
    EXPECT_TRUE(wait_for([&] {
        a->progress();
        b->progress();
        return a->unacknowledged(1) == 0;
    }));
    EXPECT_EQ(a->counters(1).bytes, 2 * data.size());
    std::vector<int> counted;
    EXPECT_TRUE(a->take_counted(counted));
    EXPECT_EQ(counted, std::vector<int>{1});
    EXPECT_TRUE(b->take_counted(counted));
    EXPECT_TRUE(counted.empty()) << "it only received";
}

TEST_P(RailsOver, ALinkMayGoWithArrivalsHeld) {
    Pair pair(GetParam());
    ASSERT_TRUE(pair.open());
    pair.connect();
    auto a = pair.link_a(1);
    auto b = pair.link_b(1);
    std::vector<std::byte> data(9000);
    int taken = 0;
    Arrival held;
    bool holds = false;
    EXPECT_TRUE(wait_for([&] {
        if (taken < 3 && a->send(1, header_of(1, 0, data.size()), data.data()) == SendResult::in_flight)
            ++taken;
        a->progress();
        b->progress();
        holds = holds || b->receive(0, held);
        return holds && taken == 3;
    }));
    b.reset();  // one arrival held, others in the inbox or still to come
    auto other = pair.link_b(2);
    EXPECT_TRUE(wait_for([&] {
        a->progress();
        other->progress();
        return a->outstanding() == 0;
    })) << "the sender's window is lost to a communicator that is gone";
}

TEST_P(RailsOver, TheSteadyStateAllocatesNothing) {
    Pair pair(GetParam());
    ASSERT_TRUE(pair.open());
    pair.connect();
    auto a = pair.link_a(1);
    auto b = pair.link_b(1);
    std::vector<std::byte> data(64 << 10);
    std::vector<Arrival> held;
    held.reserve(1024);
    // Sends `count` chunks; until `hold` is over, none is given back.
    auto round = [&](size_t bytes, int count, bool hold) {
        int sent = 0;
        int received = 0;
        auto end = std::chrono::steady_clock::now() + 10s;
        int busy = 0;
        while (std::chrono::steady_clock::now() < end) {
            if (sent < count) {
                SendResult result = a->send(1, header_of(1, 0, bytes), data.data());
                bool taken = result == SendResult::copied || result == SendResult::in_flight;
                sent += taken ? 1 : 0;
                busy = taken ? 0 : busy + 1;
            }
            a->progress();
            b->progress();
            Arrival arrival;
            while (b->receive(0, arrival)) {
                held.push_back(arrival);
                ++received;
            }
            if (!hold || sent == count || busy > 2000) {
                hold = false;
                for (const Arrival &taken : held)
                    b->release(taken);
                held.clear();
            }
            Completion completion;
            while (a->completed(completion)) {
            }
            if (sent == count && received == count && a->outstanding() == 0)
                return true;
            sched_yield();
        }
        return false;
    };
    for (size_t bytes : {size_t{8}, data.size()})  // as much under way as a window allows
        ASSERT_TRUE(round(bytes, 600, true));
    uint64_t before = allocations;
    for (size_t bytes : {size_t{8}, data.size()})
        EXPECT_TRUE(round(bytes, 200, false));
    EXPECT_EQ(allocations - before, 0u);
}

TEST_P(RailsOver, StartAndEndAreQuick) {
    auto begin = std::chrono::steady_clock::now();
    {
        Pair pair(GetParam());
        ASSERT_TRUE(pair.open());
        auto opened = std::chrono::steady_clock::now();
        std::cout << "two contexts and workers: " << (opened - begin) / 1us << " us\n";
        pair.connect();
        auto a = pair.link_a(1);
        std::byte one{1};
        EXPECT_EQ(a->send(1, header_of(1, 0, 1), &one), SendResult::copied);
        begin = std::chrono::steady_clock::now();
    }
    auto took = std::chrono::steady_clock::now() - begin;
    std::cout << "closing both: " << took / 1us << " us\n";
    EXPECT_LT(took, 2s);
}

TEST(Rails, ASleepEndsWhenSomethingComes) {
    Pair pair(kTcp);
    ASSERT_TRUE(pair.open());
    pair.connect();
    auto a = pair.link_a(1);
    auto b = pair.link_b(1);
    constexpr int64_t kLong = 20'000'000'000;
    const std::vector<std::byte> data(4096);
    const auto begin = std::chrono::steady_clock::now();
    std::atomic<bool> came{false};
    std::thread sender([&] {
        for (uint32_t block = 0; block < 3; ++block) {
            std::this_thread::sleep_for(20ms);
            EXPECT_TRUE(wait_for([&] {
                pair.b->progress();
                return b->send(0, header_of(1, block, data.size()), data.data()) != SendResult::busy;
            }));
        }
        while (!came) {
            pair.b->progress();
            sched_yield();
        }
    });
    Arrival arrival;
    for (int chunks = 0; chunks < 3;) {
        EXPECT_TRUE(pair.a->doze(kLong));
        for (; a->receive(1, arrival); ++chunks)
            a->release(arrival);
    }
    came = true;
    sender.join();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s);
}

TEST(Rails, NobodySleepsWhereAMessageWouldNotWake) {
    const Pair pair(kPut);
    ASSERT_TRUE(pair.open());
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_FALSE(pair.a->doze(20'000'000'000));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s);
}

TEST(Rails, SeveralThreadsMayUseOneRail) {
    RailOptions options;
    options.threads = true;
    Pair pair(kTcp, options);
    ASSERT_TRUE(pair.open());
    pair.connect();
    std::vector<std::thread> threads;
    std::vector<std::string> failures(4);
    for (uint32_t comm = 0; comm < 2; ++comm) {
        for (int me = 0; me < 2; ++me) {
            threads.emplace_back([&, comm, me] {
                auto link = me == 0 ? pair.link_a(comm) : pair.link_b(comm);
                Traffic::Options options{.chunks = 100, .window = RailOptions().window_bytes};
                Traffic traffic(*link, comm, me, 1 - me, options);
                static std::atomic<int> finished;
                bool counted = false;
                bool ended = wait_for([&] {
                    traffic.step();
                    link->progress();
                    if (!counted && traffic.done()) {
                        counted = true;
                        ++finished;
                    }
                    return finished == 4;
                });
                traffic.check_end();
                if (!ended || traffic.errors() != 0)
                    failures[2 * comm + me] = traffic.state() + " " + traffic.first_error();
            });
        }
    }
    for (std::thread &thread : threads)
        thread.join();
    for (const std::string &failure : failures)
        EXPECT_EQ(failure, "");
}

TEST(Rails, WhatCannotBeOpenedIsAProblemWithASentence) {
    RailSpec specs[] = {{"nosuch0", "nosuch0", "tcp", false}, kTcp, {"odd", "memory", "warp", false}};
    auto rails = Rails::open(specs, 1, {});
    EXPECT_EQ(rails->count(), 1);
    EXPECT_EQ(rails->spec(0).name, "lo");
    auto problems = rails->problems();
    ASSERT_EQ(problems.size(), 2u);
    EXPECT_EQ(problems[0].first, "nosuch0");
    EXPECT_NE(problems[0].second.find("no network device nosuch0"), std::string::npos) << problems[0].second;
    EXPECT_EQ(problems[1].first, "odd");
    EXPECT_NE(problems[1].second.find("warp"), std::string::npos) << problems[1].second;
}

TEST(Rails, TheEnvironmentDoesNotChooseTheDevice) {
    setenv("UCX_TLS", "self", 1);
    setenv("UCX_NET_DEVICES", "nosuch0", 1);
    auto rails = Rails::open({&kTcp, 1}, 1, {});
    unsetenv("UCX_TLS");
    unsetenv("UCX_NET_DEVICES");
    EXPECT_EQ(rails->count(), 1);
}

TEST(Rails, ConnectingTwiceIsHarmlessAndConflictsAreErrors) {
    Pair pair(kTcp);
    ASSERT_TRUE(pair.open());
    pair.connect();
    EXPECT_TRUE(pair.a->connect(0, 1, 0xb0b, pair.b->address(0)).ok());
    EXPECT_EQ(pair.a->connect(0, 1, 0xca7, pair.b->address(0)).fault(), Fault::wrong_inside);
    EXPECT_EQ(pair.a->connect(0, -1, 0xca7, pair.b->address(0)).fault(), Fault::wrong_inside);
    auto link = pair.a->link(0, 1, {-1, 1, 2}, kDeadlineS);
    EXPECT_TRUE(link->reaches(1));
    EXPECT_FALSE(link->reaches(2)) << "never connected";
}

TEST(Rails, GoodChunksLieBetweenACellAndTheLargest) {
    Pair pair(kTcp);
    ASSERT_TRUE(pair.open());
    pair.connect();
    auto link = pair.link_a(1);
    EXPECT_GE(link->max_chunk(), kMaxCellBytes);
    for (size_t bytes : {size_t{1}, size_t{100000}, size_t{1} << 20, size_t{1} << 30}) {
        EXPECT_GE(link->good_chunk(bytes), kMaxCellBytes);
        EXPECT_LE(link->good_chunk(bytes), link->max_chunk());
    }
}

TEST(Rails, SaysWhichUcxItIs) {
    EXPECT_NE(version().find("UCX 1."), std::string::npos) << version();
}

}  // namespace
}  // namespace flx::ucx

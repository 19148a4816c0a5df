/// Ranks meet in a store, each in a thread of its own: what they tell each other, who is missing, and strangers.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "runtime/store/bootstrap_store.h"
#include "runtime/store/line.h"
#include "tests/runtime/link/ranks.h"

namespace {
std::atomic<size_t> largest_piece = 0;
std::atomic<size_t> most_of_a_piece = SIZE_MAX;
}  // namespace

/// Pieces of memory are counted, and can be short.
void *operator new(size_t bytes) {
    size_t largest = largest_piece;
    while (bytes > largest && !largest_piece.compare_exchange_weak(largest, bytes)) {
    }
    void *const memory = bytes > most_of_a_piece ? nullptr : std::malloc(bytes);
    if (memory == nullptr)
        throw std::bad_alloc();
    return memory;
}
void *operator new(size_t bytes, const std::nothrow_t & /*unused*/) noexcept {
    return bytes > most_of_a_piece ? nullptr : std::malloc(bytes);
}
void operator delete(void *memory) noexcept {
    std::free(memory);
}
void operator delete(void *memory, size_t /*bytes*/) noexcept {
    std::free(memory);
}

namespace flx::store {
namespace {

using Seconds = std::chrono::duration<double>;
using Clock = std::chrono::steady_clock;

/// One that nobody listens at now.
int free_port() {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr *>(&at), length), 0);
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr *>(&at), &length), 0);
    close(fd);
    return ntohs(at.sin_port);
}

int connected(int port) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(static_cast<uint16_t>(port));
    if (connect(fd, reinterpret_cast<sockaddr *>(&at), sizeof at) == 0)
        return fd;
    close(fd);
    return -1;
}

Place place_of(int port, int rank, int size, double deadline_s = 20) {
    return {"127.0.0.1", port, rank, size, deadline_s};
}

bool has(const Status &status, Fault fault, const std::vector<std::string> &parts) {
    bool all = !status.ok() && status.fault() == fault;
    for (const std::string &part : parts)
        all = all && status.sentence().find(part) != std::string::npos;
    EXPECT_TRUE(all) << status.sentence();
    return all;
}

/// With a bootstrap in a store between them.
void run_store(int size, const std::function<void(Bootstrap &)> &body) {
    const int port = free_port();
    testing::run_ranks(size, [&](int rank) {
        std::unique_ptr<Bootstrap> bootstrap;
        const Status status = make_store_bootstrap(place_of(port, rank, size), bootstrap);
        ASSERT_TRUE(status.ok()) << status.sentence();
        body(*bootstrap);
    });
}

TEST(Store, GathersWhatRanksTell) {
    for (const int size : {1, 2, 7})
        run_store(size, [&](Bootstrap &bootstrap) {
            EXPECT_EQ(bootstrap.size(), size);
            EXPECT_EQ(bootstrap.ranks_of_program(), size);
            for (const size_t count : {1U, 3U, 100'000U}) {
                std::vector<int> mine(count);
                for (size_t i = 0; i < count; ++i)
                    mine[i] = bootstrap.rank() * 1'000'003 + static_cast<int>(i);
                std::vector<int> all(count * size);
                ASSERT_TRUE(bootstrap.allgather(mine.data(), count * sizeof(int), all.data()).ok());
                for (int rank = 0; rank < size; ++rank)
                    for (size_t i = 0; i < count; ++i)
                        ASSERT_EQ(all[rank * count + i], rank * 1'000'003 + static_cast<int>(i));
                ASSERT_TRUE(bootstrap.barrier().ok());
            }
        });
}

/// Of colors, keys that turn the order round, groups without rank 0, and groups of groups.
TEST(Store, SplitsAsMpiDoes) {
    run_store(7, [](Bootstrap &bootstrap) {
        const int rank = bootstrap.rank();
        std::unique_ptr<Bootstrap> half;
        ASSERT_TRUE(bootstrap.split(rank == 3 ? -1 : rank % 2, -rank, half).ok());
        ASSERT_EQ(half == nullptr, rank == 3);
        if (!half)
            return;
        const std::vector<int> expected = rank % 2 == 0 ? std::vector<int>{6, 4, 2, 0} : std::vector<int>{5, 1};
        std::vector<int> members(half->size());
        ASSERT_TRUE(half->allgather(&rank, sizeof rank, members.data()).ok());
        EXPECT_EQ(members, expected);
        std::unique_ptr<Bootstrap> again;
        ASSERT_TRUE(half->dup(again).ok());
        half.reset();
        members.assign(members.size(), -1);
        ASSERT_TRUE(again->allgather(&rank, sizeof rank, members.data()).ok());
        EXPECT_EQ(members, expected);
    });
}

TEST(Store, GroupsAreUsedFromSeveralThreadsAtOnce) {
    constexpr int kRounds = 200;
    run_store(3, [](Bootstrap &bootstrap) {
        std::unique_ptr<Bootstrap> other;
        ASSERT_TRUE(bootstrap.dup(other).ok());
        const auto rounds = [](Bootstrap &group, int factor) {
            for (int round = 0; round < kRounds; ++round) {
                const int mine = factor * (round * 10 + group.rank());
                std::vector<int> all(group.size());
                ASSERT_TRUE(group.allgather(&mine, sizeof mine, all.data()).ok());
                for (int rank = 0; rank < group.size(); ++rank)
                    ASSERT_EQ(all[rank], factor * (round * 10 + rank));
            }
        };
        std::thread beside([&] { rounds(*other, -1); });
        rounds(bootstrap, 1);
        beside.join();
    });
}

TEST(Store, OnePlaceServesManyTimes) {
    const int port = free_port();
    testing::run_ranks(3, [&](int rank) {
        for (int round = 0; round < 30; ++round) {
            std::unique_ptr<Bootstrap> first;
            ASSERT_TRUE(make_store_bootstrap(place_of(port, rank, 3), first).ok());
            if (round % 2 == 0)
                first.reset();  // on each rank when it comes to it
            std::unique_ptr<Bootstrap> second;
            const Status status = make_store_bootstrap(place_of(port, rank, 3), second);
            ASSERT_TRUE(status.ok()) << status.sentence();
            int mine = round;
            std::vector<int> all(3);
            ASSERT_TRUE(second->allgather(&mine, sizeof mine, all.data()).ok());
            ASSERT_EQ(all, std::vector<int>(3, round));
        }
    });
}

/// Groups without rank 0 go on when rank 0 has none any more.
TEST(Store, StaysWhileRanksNeedIt) {
    std::atomic<bool> gone = false;
    run_store(3, [&](Bootstrap &bootstrap) {
        std::unique_ptr<Bootstrap> half;
        ASSERT_TRUE(bootstrap.split(bootstrap.rank() == 0 ? -1 : 0, 0, half).ok());
        if (!half) {
            gone = true;
            return;
        }
        while (!gone)
            std::this_thread::yield();
        for (int round = 0; round < 50; ++round) {
            std::unique_ptr<Bootstrap> again;
            ASSERT_TRUE(half->dup(again).ok());
        }
    });
}

TEST(Store, NamesRanksThatDoNotCome) {
    const int port = free_port();
    testing::run_ranks(2, [&](int rank) {
        const auto began = Clock::now();
        std::unique_ptr<Bootstrap> bootstrap;
        const Status status = make_store_bootstrap(place_of(port, rank * 2, 5, 0.7), bootstrap);
        EXPECT_TRUE(has(status, Fault::peer_late, {"ranks 1, 3 and 4 did not come", "within 0.7 s", "2 of 5"}));
        EXPECT_LT(Seconds(Clock::now() - began).count(), 3);
    });
}

TEST(Store, SaysThatNobodyListens) {
    std::unique_ptr<Bootstrap> bootstrap;
    const Status status = make_store_bootstrap(place_of(free_port(), 1, 2, 0.5), bootstrap);
    EXPECT_TRUE(has(status, Fault::no_store, {"rank 1 found no store", "Connection refused", "MASTER_PORT"}));
}

TEST(Store, RefusesASecondOfARankAndAnotherSize) {
    const int port = free_port();
    Status second, other_size;
    testing::run_ranks(4, [&](int thread) {
        std::unique_ptr<Bootstrap> bootstrap;
        if (thread == 0) {
            const Status status = make_store_bootstrap(place_of(port, 0, 3, 2), bootstrap);
            EXPECT_TRUE(has(status, Fault::peer_late, {"rank 2 did not come", "was refused", "4 ranks"}));
            return;
        }
        if (thread == 1) {
            (void)make_store_bootstrap(place_of(port, 1, 3, 2), bootstrap);
            return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
        // By another name of the address, so that it is a connection of its own, as another process has.
        Place same = place_of(port, 1, 3, 2);
        same.address = "127.1";
        if (thread == 2)
            second = make_store_bootstrap(same, bootstrap);
        else
            std::this_thread::sleep_for(std::chrono::milliseconds(500)),
                other_size = make_store_bootstrap(place_of(port, 2, 4, 2), bootstrap);
    });
    EXPECT_TRUE(has(second, Fault::wrong_place, {"rank 1", "two processes", "RANK"}));
    EXPECT_TRUE(has(other_size, Fault::wrong_place, {"rank 2 says that there are 4 ranks, and rank 0", "3"}));
}

/// The end of a process ends its connection.
TEST(Store, NamesARankThatEnds) {
    run_store(3, [](Bootstrap &bootstrap) {
        if (bootstrap.rank() == 1)
            return;
        int mine = 0;
        std::vector<int> all(3);
        Status status = bootstrap.allgather(&mine, sizeof mine, all.data());
        EXPECT_TRUE(has(status, Fault::peer_died, {"rank 1 ended"}));
    });
}

/// Not another that went because of it.
TEST(Store, NamesTheRankThatEndedFirst) {
    const int port = free_port();
    std::atomic<int> left{0};
    testing::run_ranks(3, [&](int rank) {
        std::unique_ptr<Bootstrap> bootstrap;
        ASSERT_TRUE(make_store_bootstrap(place_of(port, rank, 3), bootstrap).ok());
        int mine = 0;
        std::vector<int> all(3);
        if (rank == 2) {
            while (left != 2 && !::testing::Test::HasFailure())
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the store has heard of it
        }
        if (rank != 1) {
            const Status status = bootstrap->allgather(&mine, sizeof mine, all.data());
            EXPECT_TRUE(has(status, Fault::peer_died, {"rank 1 ended"}));
        }
        bootstrap.reset();
        ++left;
    });
}

TEST(Store, WhatListensIsNoStore) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof at;
    ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr *>(&at), length), 0);
    ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr *>(&at), &length), 0);
    ASSERT_EQ(listen(listener, 4), 0);
    std::thread server([&] {
        const int fd = accept(listener, nullptr, nullptr);
        const std::string_view banner = "SSH-2.0-OpenSSH_9.2\r\n";
        EXPECT_EQ(write(fd, banner.data(), banner.size()), static_cast<ssize_t>(banner.size()));
        char byte;
        while (read(fd, &byte, 1) > 0) {
        }
        close(fd);
    });
    std::unique_ptr<Bootstrap> bootstrap;
    const Status status = make_store_bootstrap(place_of(ntohs(at.sin_port), 1, 2, 5), bootstrap);
    EXPECT_TRUE(has(status, Fault::no_store, {"no store of FLX", "SSH-2.0"}));
    close(listener);
    server.join();
}

TEST(Store, PortIsTaken) {
    const int port = free_port();
    std::unique_ptr<Bootstrap> first;
    ASSERT_TRUE(make_store_bootstrap(place_of(port, 0, 1), first).ok());
    Place other = place_of(port, 0, 1);
    other.address = "127.1";
    std::unique_ptr<Bootstrap> second;
    EXPECT_TRUE(has(make_store_bootstrap(other, second), Fault::no_store, {"rank 0 cannot listen", "has the port"}));
}

size_t descriptors_of_process() {
    size_t open = 0;
    for (int fd = 0; fd < 4096; ++fd)
        open += fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
    return open;
}

/// Noise, silence, and messages that only ranks may send: none is kept, and ranks come through between them.
TEST(Store, StrangersLeaveNothing) {
    const int port = free_port();
    std::atomic<bool> over = false;
    testing::run_ranks(2, [&](int rank) {
        std::unique_ptr<Bootstrap> bootstrap;
        if (rank == 0) {
            std::thread strangers([&] {
                std::vector<int> held;
                while (!over) {
                    const int fd = connected(port);
                    if (fd < 0)
                        continue;
                    Header header;
                    header.kind = Kind::gather;
                    header.bytes = held.size() % 3 == 0 ? 0 : 1U << 29;
                    if (held.size() % 4 == 1)
                        (void)!send(fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
                    else if (held.size() % 4 == 2)
                        (void)!send(fd, &header, sizeof header, MSG_NOSIGNAL);
                    held.push_back(fd);
                    if (held.size() == 300) {
                        for (const int old : held)
                            close(old);
                        held.clear();
                    }
                }
                for (const int fd : held)
                    close(fd);
            });
            const Status status = make_store_bootstrap(place_of(port, 0, 2, 20), bootstrap);
            over = true;
            strangers.join();
            ASSERT_TRUE(status.ok()) << status.sentence();
        } else {
            std::this_thread::sleep_for(Seconds(1));
            const Status status = make_store_bootstrap(place_of(port, 1, 2, 20), bootstrap);
            ASSERT_TRUE(status.ok()) << status.sentence();
        }
        // What strangers held is given back while the store goes on.
        const size_t before = descriptors_of_process();
        ASSERT_TRUE(bootstrap->barrier().ok());
        std::this_thread::sleep_for(Seconds(3.5));
        ASSERT_TRUE(bootstrap->barrier().ok());
        EXPECT_LE(descriptors_of_process(), before);
        EXPECT_LT(descriptors_of_process(), 40U);
        ASSERT_TRUE(bootstrap->barrier().ok());
    });
}

TEST(Store, StrangersThatSendWithoutEndFillNothing) {
    const int port = free_port();
    std::atomic<bool> over = false;
    largest_piece = 0;
    std::thread stranger([&] {
        static const std::vector<char> noise(1 << 18, 'F');
        largest_piece = 0;
        Header header;
        header.kind = Kind::join;
        header.bytes = sizeof(Join);
        while (!over) {
            const int fd = connected(port);
            if (fd < 0)
                continue;
            ssize_t went = send(fd, &header, sizeof header, MSG_NOSIGNAL);
            while (!over && went > 0)
                went = send(fd, noise.data(), noise.size(), MSG_NOSIGNAL);
            close(fd);
        }
    });
    testing::run_ranks(2, [&](int rank) {
        if (rank == 1)
            std::this_thread::sleep_for(Seconds(0.5));
        std::unique_ptr<Bootstrap> bootstrap;
        const Status status = make_store_bootstrap(place_of(port, rank, 2), bootstrap);
        over = over || rank == 1;
        ASSERT_TRUE(status.ok()) << status.sentence();
    });
    over = true;
    stranger.join();
    EXPECT_LT(largest_piece, size_t{1} << 17);
}

TEST(Store, SilentStrangersKeepNobodyWaiting) {
    const int port = free_port();
    testing::run_ranks(2, [&](int rank) {
        std::vector<int> strangers;
        while (rank == 1 && strangers.size() < 300)
            if (const int fd = connected(port); fd >= 0)
                strangers.push_back(fd);
        const auto began = Clock::now();
        std::unique_ptr<Bootstrap> bootstrap;
        const Status status = make_store_bootstrap(place_of(port, rank, 2), bootstrap);
        ASSERT_TRUE(status.ok()) << status.sentence();
        if (rank == 1) {
            EXPECT_LT(Seconds(Clock::now() - began).count(), 2.5);
        }
        for (const int fd : strangers)
            close(fd);
    });
}

/// As rank 1 of 2, by hand.
int joined_by_hand(int port) {
    int fd = -1;
    while (fd < 0)
        fd = connected(port);
    struct {
        Header header;
        Join wish;
    } hello;
    hello.header.kind = Kind::join;
    hello.header.bytes = sizeof hello.wish;
    hello.wish = {2, 1, 77, 20};
    EXPECT_EQ(send(fd, &hello, sizeof hello, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof hello));
    Header answer;
    EXPECT_EQ(recv(fd, &answer, sizeof answer, MSG_WAITALL), static_cast<ssize_t>(sizeof answer));
    EXPECT_EQ(answer.kind, Kind::joined);
    return fd;
}

TEST(Store, EndsWithASentenceWhereMemoryIsShort) {
    const int port = free_port();
    Status status;
    std::thread rank_0([&] {
        std::unique_ptr<Bootstrap> bootstrap;
        status = make_store_bootstrap(place_of(port, 0, 2), bootstrap);
    });
    const int fd = joined_by_hand(port);
    Header header;
    header.kind = Kind::gather;
    header.index = 1;
    header.group = 1;
    header.bytes = 64U << 20;
    const std::vector<char> much(1 << 16);
    most_of_a_piece = 8U << 20;
    ssize_t went = send(fd, &header, sizeof header, MSG_NOSIGNAL);
    for (size_t sent = 0; went > 0 && sent < header.bytes; sent += much.size())
        went = send(fd, much.data(), much.size(), MSG_NOSIGNAL);
    rank_0.join();
    most_of_a_piece = SIZE_MAX;
    close(fd);
    EXPECT_TRUE(has(status, Fault::no_store, {"the store at 127.0.0.1", "has ended", "bad_alloc"}));
    // The place is free again.
    std::unique_ptr<Bootstrap> bootstrap;
    status = make_store_bootstrap(place_of(port, 0, 1), bootstrap);
    EXPECT_TRUE(status.ok()) << status.sentence();
}

TEST(Store, WhatAllToldIsThereOnceForAll) {
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    const auto payload = std::make_shared<const std::vector<std::byte>>(1000, std::byte{7});
    Header header;
    header.bytes = 1000;
    Outgoing one;
    Outgoing other;
    for (int i = 0; i < 20; ++i)
        one.put(header, payload);
    other.put(header, payload);
    EXPECT_EQ(payload.use_count(), 22);
    EXPECT_TRUE(one.send_some(fds[0]));
    EXPECT_TRUE(one.empty());
    Incoming in;
    Frame frame;
    Incoming::Ended ended{};
    for (int i = 0; i < 20; ++i) {
        // No more than it may, and the rest afterwards.
        ASSERT_EQ(in.read(fds[1], 100), Incoming::Ended::no);
        EXPECT_EQ(in.size(), 100U);
        EXPECT_FALSE(in.next(frame, 1000, ended));
        ASSERT_EQ(in.read(fds[1], sizeof header + 1000), Incoming::Ended::no);
        ASSERT_TRUE(in.next(frame, 1000, ended));
        EXPECT_EQ(frame.payload, *payload);
    }
    close(fds[0]);
    EXPECT_FALSE(other.send_some(fds[0]));
    EXPECT_EQ(in.read(fds[1], 1), Incoming::Ended::closed);
    close(fds[1]);
}

TEST(Store, ARankThatHasJoinedHearsWhyItIsRefused) {
    std::shared_ptr<Line> line;
    uint64_t group = 0;
    ASSERT_TRUE(Line::join(place_of(free_port(), 0, 1), {}, line, group).ok());
    ASSERT_TRUE(line->send(Kind::gather, 4242, 0, {}).ok());
    Frame answer;
    EXPECT_TRUE(has(line->receive(4242, {}, answer), Fault::not_readable, {"a group that it is not in"}));
}

/// What is under way elsewhere may be what the others wait for before they come.
TEST(Store, MovesOtherThingsWhileItWaits) {
    const int port = free_port();
    std::atomic<int> stage = 0;
    testing::run_ranks(3, [&](int rank) {
        while (stage < 2 - rank)  // the last is first, which finds no store
            std::this_thread::yield();
        std::unique_ptr<Bootstrap> bootstrap;
        bool called = false;
        const Status status = make_store_bootstrap(place_of(port, rank, 3), bootstrap, [&] {
            stage += called || rank == 0 ? 0 : 1;
            called = true;
            return Status();
        });
        EXPECT_TRUE(status.ok()) << status.sentence();
    });
    std::unique_ptr<Bootstrap> bootstrap;
    const Status status = make_store_bootstrap(place_of(port, 1, 3), bootstrap,
                                               [] { return fail(Fault::peer_died, "something else went wrong"); });
    EXPECT_TRUE(has(status, Fault::peer_died, {"something else"}));
}

/// The group lives on at the store with its other members.
TEST(Store, GroupsOfARankThatCameAgainAreOthers) {
    const int port = free_port();
    testing::run_ranks(3, [&](int rank) {
        std::unique_ptr<Bootstrap> kept[2][2];
        for (auto &[world, group] : kept) {
            Status status = make_store_bootstrap(place_of(port, rank, 3), world);
            ASSERT_TRUE(status.ok()) << status.sentence();
            status = world->split(0, rank == 1 ? -1 : rank, group);  // its first member is rank 1
            ASSERT_TRUE(status.ok()) << status.sentence();
            std::vector<int> members(3);
            status = group->allgather(&rank, sizeof rank, members.data());
            ASSERT_TRUE(status.ok()) << status.sentence();
            EXPECT_EQ(members, (std::vector<int>{1, 0, 2}));
            if (rank == 1) {
                group.reset();
                world.reset();
            }
        }
    });
}

TEST(Store, ARankThatIsConnectedMayBeLate) {
    const int port = free_port();
    testing::run_ranks(2, [&](int rank) {
        std::unique_ptr<Bootstrap> first, second;
        ASSERT_TRUE(make_store_bootstrap(place_of(port, rank, 2, 5), first).ok());
        if (rank == 1)
            std::this_thread::sleep_for(Seconds(1.5));
        const Status status = make_store_bootstrap(place_of(port, rank, 2, 0.5), second);
        EXPECT_TRUE(status.ok()) << status.sentence();
    });
}

TEST(Store, NamesARankThatGoesInsteadOfComingAgain) {
    const int port = free_port();
    testing::run_ranks(2, [&](int rank) {
        std::unique_ptr<Bootstrap> first, second;
        ASSERT_TRUE(make_store_bootstrap(place_of(port, rank, 2, 5), first).ok());
        if (rank == 1)
            return std::this_thread::sleep_for(Seconds(1.2));
        const auto began = Clock::now();
        const Status status = make_store_bootstrap(place_of(port, rank, 2, 0.5), second);
        EXPECT_TRUE(has(status, Fault::peer_late, {"rank 1 did not come"}));
        EXPECT_GT(Seconds(Clock::now() - began).count(), 1);
        EXPECT_LT(Seconds(Clock::now() - began).count(), 4);
    });
}

TEST(Store, AnotherSizeLeavesTheConnectionAsItIs) {
    const int port = free_port();
    testing::run_ranks(2, [&](int rank) {
        std::unique_ptr<Bootstrap> first, second, third;
        ASSERT_TRUE(make_store_bootstrap(place_of(port, rank, 2), first).ok());
        EXPECT_TRUE(has(make_store_bootstrap(place_of(port, rank, 3), second), Fault::wrong_place, {"3 ranks"}));
        ASSERT_TRUE(first->barrier().ok());
        ASSERT_TRUE(make_store_bootstrap(place_of(port, rank, 2), third).ok());
        ASSERT_TRUE(first->barrier().ok());
        ASSERT_TRUE(third->barrier().ok());
    });
}

TEST(Store, AForkedChildIsAnotherProcess) {
    const int port = free_port();
    std::atomic<bool> over = false;
    testing::run_ranks(2, [&](int rank) {
        std::unique_ptr<Bootstrap> bootstrap;
        ASSERT_TRUE(make_store_bootstrap(place_of(port, rank, 2), bootstrap).ok());
        if (rank == 1) {
            const pid_t child = fork();
            if (child == 0) {
                std::unique_ptr<Bootstrap> other;
                const Status status = make_store_bootstrap(place_of(port, 1, 2, 5), other);
                _exit(has(status, Fault::wrong_place, {"two processes say that they are rank 1"}) ? 0 : 1);
            }
            int code = -1;
            EXPECT_EQ(waitpid(child, &code, 0), child);
            EXPECT_EQ(code, 0);
        }
        const Status status = bootstrap->barrier();
        EXPECT_TRUE(status.ok()) << status.sentence();
    });
}

TEST(Store, StoresThatEndLeaveNothing) {
    const size_t before = descriptors_of_process();
    for (int round = 0; round < 20; ++round) {
        std::unique_ptr<Bootstrap> bootstrap;
        ASSERT_TRUE(make_store_bootstrap(place_of(free_port(), 0, 1), bootstrap).ok());
        bootstrap.reset();
        std::this_thread::sleep_for(Seconds(0.05));
    }
    EXPECT_LE(descriptors_of_process(), before + 8);
}

/// The limit of this process while it lives.
class SoftLimit {
  public:
    SoftLimit() {
        getrlimit(RLIMIT_NOFILE, &before_);
        limit_ = before_;
    }
    ~SoftLimit() { setrlimit(RLIMIT_NOFILE, &before_); }
    SoftLimit(const SoftLimit &) = delete;
    SoftLimit &operator=(const SoftLimit &) = delete;
    void set(rlim_t most) {
        limit_.rlim_cur = most;
        EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit_), 0);
    }

  private:
    rlimit before_{};
    rlimit limit_{};
};

double cpu_s() {
    rusage used{};
    getrusage(RUSAGE_SELF, &used);
    return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

TEST(Store, WaitsQuietlyWhereDescriptorsAreShort) {
    SoftLimit limit;
    limit.set(128);
    const int port = free_port();
    std::unique_ptr<Bootstrap> bootstrap;
    ASSERT_TRUE(make_store_bootstrap(place_of(port, 0, 1), bootstrap).ok());
    rlimit raised{};
    getrlimit(RLIMIT_NOFILE, &raised);
    EXPECT_GT(raised.rlim_cur, 128U);

    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(static_cast<uint16_t>(port));
    ::testing::internal::CaptureStderr();
    const int next = dup(0);
    close(next);
    limit.set(static_cast<rlim_t>(next));
    ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr *>(&at), sizeof at), 0);
    const double before = cpu_s();
    std::this_thread::sleep_for(Seconds(1));
    EXPECT_LT(cpu_s() - before, 0.2);
    limit.set(1024);
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("cannot take another connection for now"), std::string::npos) << said;
    EXPECT_EQ(said.find("cannot take"), said.rfind("cannot take")) << said;
    // It is heard now, and is no rank.
    EXPECT_EQ(send(fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
    const timeval most{10, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    char byte;
    errno = 0;
    EXPECT_LE(recv(fd, &byte, 1, 0), 0);
    EXPECT_NE(errno, EAGAIN);
    close(fd);
}

/// The system may choose the port that is connected to for the connection's own end.
TEST(Store, NobodyMeetsItself) {
    const auto began = Clock::now();
    const Place place = place_of(free_port() & ~1, 1, 2);
    for (int attempt = 0; attempt < 60'000 && Clock::now() - began < Seconds(10); ++attempt) {
        OwnDescriptor socket;
        std::string why;
        ASSERT_FALSE(connect_to(place, 1, {}, socket, why));
    }
}

TEST(Store, AHostThatIsGoneIsNoticed) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    tune(fd);
    int unanswered_ms = 0;
    socklen_t length = sizeof unanswered_ms;
    ASSERT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, &length), 0);
    EXPECT_GE(unanswered_ms, 20'000);
    EXPECT_LE(unanswered_ms, 30'000);
    close(fd);
}

TEST(Store, AllRanksFitIntoAGroup) {
    for (const int ranks : {2, 16'384, 1 << 20})
        EXPECT_GE(most_of_one(ranks), static_cast<uint32_t>(ranks) * 4);
}

TEST(Store, PlacesComeFromArgumentsAndTheEnvironment) {
    Place place;
    for (const char *name : {"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"})
        unsetenv(name);
    EXPECT_TRUE(has(find_place(nullptr, 0, -1, 0, place), Fault::wrong_place, {"MASTER_ADDR is not set"}));
    setenv("MASTER_ADDR", "10.1.2.3", 1);
    EXPECT_TRUE(has(find_place(nullptr, 0, -1, 0, place), Fault::wrong_place, {"MASTER_PORT is not set"}));
    setenv("MASTER_PORT", "29500x", 1);
    EXPECT_TRUE(has(find_place(nullptr, 0, -1, 0, place), Fault::wrong_place, {"29500x", "1 to 65535"}));
    setenv("MASTER_PORT", "29500", 1);
    setenv("RANK", "4", 1);
    setenv("WORLD_SIZE", "4", 1);
    EXPECT_TRUE(has(find_place(nullptr, 0, -1, 0, place), Fault::wrong_place, {"rank is 4", "0 to 3"}));
    setenv("RANK", "3", 1);
    ASSERT_TRUE(find_place(nullptr, 0, -1, 0, place).ok());
    EXPECT_EQ(place.text(), "10.1.2.3:29500");
    EXPECT_EQ(place.rank, 3);
    EXPECT_EQ(place.size, 4);
    ASSERT_TRUE(find_place("localhost", 1, 0, 2, place).ok());
    EXPECT_EQ(place.text(), "localhost:1");
    EXPECT_TRUE(has(find_place("localhost", -1, 0, 2, place), Fault::wrong_place, {"port is -1"}));
}

}  // namespace
}  // namespace flx::store

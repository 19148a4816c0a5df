/// Ranks meet in a store, each in a thread of its own: what they tell each other, who is missing, and strangers.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/store/bootstrap_store.h"
#include "tests/runtime/link/ranks.h"

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

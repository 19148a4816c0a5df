/// \file held_up_test.cpp
/// Connections over loopback to two addresses, which a descriptor of epoll watches through another, as UCX's workers
/// do.
#include "ucx_glue/held_up.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace flx::ucx {
namespace {

/// Of IPv4 or IPv6, with a port to be found.
sockaddr_storage socket_address(const char *text) {
    sockaddr_storage result{};
    sockaddr_in ipv4{};
    sockaddr_in6 ipv6{};
    if (inet_pton(AF_INET, text, &ipv4.sin_addr) == 1) {
        ipv4.sin_family = AF_INET;
        std::memcpy(&result, &ipv4, sizeof ipv4);
    } else {
        EXPECT_EQ(inet_pton(AF_INET6, text, &ipv6.sin6_addr), 1);
        ipv6.sin6_family = AF_INET6;
        std::memcpy(&result, &ipv6, sizeof ipv6);
    }
    return result;
}

HostAddress host(const char *text) {
    const sockaddr_storage address = socket_address(text);
    return host_of(reinterpret_cast<const sockaddr &>(address));
}

struct Connection {
    int near = -1;  // watched
    int far = -1;
};

class HeldUpTest : public ::testing::Test {
  protected:
    HeldUpTest() : outer_(epoll_create1(0)), inner_(epoll_create1(0)) { watch(outer_, inner_, EPOLLIN); }
    ~HeldUpTest() override {
        for (const int fd : open_)
            close(fd);
        close(inner_);
        close(outer_);
    }

    static void watch(int epoll, int fd, uint32_t events) {
        epoll_event event{};
        event.events = events;
        EXPECT_EQ(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), 0);
    }

    Connection connect_to(const char *text, uint32_t events = EPOLLIN) {
        sockaddr_storage at = socket_address(text);
        const int listener = socket(at.ss_family, SOCK_STREAM, 0);
        socklen_t bytes = sizeof at;
        EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr *>(&at), sizeof at), 0);
        EXPECT_EQ(listen(listener, 1), 0);
        EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr *>(&at), &bytes), 0);
        Connection made;
        made.near = socket(at.ss_family, SOCK_STREAM, 0);
        EXPECT_EQ(connect(made.near, reinterpret_cast<sockaddr *>(&at), sizeof at), 0);
        made.far = accept(listener, nullptr, nullptr);
        EXPECT_GE(made.far, 0);
        fcntl(made.near, F_SETFL, O_NONBLOCK);
        fcntl(made.far, F_SETFL, O_NONBLOCK);
        watch(inner_, made.near, events);
        open_.insert(open_.end(), {listener, made.near, made.far});
        return made;
    }

    /// Until there is no room, and its peer, which does not read, has acknowledged nothing for a while.
    static void hold_up(const std::vector<Connection> &all) {
        using namespace std::chrono_literals;
        const std::vector<char> bytes(1 << 16);
        for (const auto pause : {20ms, 150ms}) {
            for (const Connection &each : all)
                while (send(each.near, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
                }
            std::this_thread::sleep_for(pause);
        }
    }

    /// Whether the connection ended.
    static bool ended(int fd) {
        char byte = 0;
        const ssize_t got = recv(fd, &byte, 1, 0);
        return got == 0 || (got < 0 && errno != EAGAIN);
    }

    const int outer_;
    const int inner_;
    std::vector<int> open_;
};

TEST_F(HeldUpTest, WhatStandsStillIsBrokenAndNothingElse) {
    const Connection full = connect_to("127.0.0.1");
    const Connection idle = connect_to("127.0.0.1");
    const Connection elsewhere = connect_to("127.0.0.2");
    hold_up({full, elsewhere});
    const HeldUp found = break_held_up(outer_, host("127.0.0.1"), Break::still);
    EXPECT_EQ(found.broken, 1U);
    EXPECT_EQ(found.waiting, 0U);
    EXPECT_TRUE(ended(full.near));
    EXPECT_FALSE(ended(idle.near));
    EXPECT_FALSE(ended(elsewhere.near));
    // It counts until whoever watches it has closed it.
    EXPECT_EQ(break_held_up(outer_, host("127.0.0.1"), Break::still).broken, 1U);
    epoll_ctl(inner_, EPOLL_CTL_DEL, full.near, nullptr);
    EXPECT_EQ(break_held_up(outer_, host("127.0.0.1"), Break::still).broken, 0U);
}

TEST_F(HeldUpTest, HostsHaveAddressesOfIpv6Too) {
    const int fd = socket(AF_INET6, SOCK_STREAM, 0);
    const sockaddr_storage loopback = socket_address("::1");
    const bool there = bind(fd, reinterpret_cast<const sockaddr *>(&loopback), sizeof loopback) == 0;
    close(fd);
    if (!there)
        GTEST_SKIP() << "skipped: this machine has no address ::1";
    const Connection full = connect_to("::1");
    const Connection elsewhere = connect_to("127.0.0.1");
    hold_up({full, elsewhere});
    EXPECT_EQ(break_held_up(outer_, host("::2"), Break::full).broken, 0U);
    EXPECT_EQ(break_held_up(outer_, host("::1"), Break::still).broken, 1U);
    EXPECT_TRUE(ended(full.near));
    EXPECT_FALSE(ended(elsewhere.near));
    EXPECT_EQ(host("fe80::1"), HostAddress{}) << "it means nothing without a device";
}

TEST_F(HeldUpTest, WhatWasNotDeliveredIsLost) {
    const Connection full = connect_to("127.0.0.1");
    hold_up({full});
    break_held_up(outer_, host("127.0.0.1"), Break::still);
    epoll_ctl(inner_, EPOLL_CTL_DEL, full.near, nullptr);
    open_.erase(std::find(open_.begin(), open_.end(), full.near));
    close(full.near);
    std::vector<char> bytes(1 << 16);
    ssize_t got = 1;
    while (got > 0)
        got = recv(full.far, bytes.data(), bytes.size(), 0);
    EXPECT_EQ(got, -1);
    EXPECT_EQ(errno, ECONNRESET);
}

TEST_F(HeldUpTest, WhatIsFullAndMovesStays) {
    const Connection busy = connect_to("127.0.0.1");
    hold_up({busy});
    std::vector<char> bytes(1 << 20);
    for (int i = 0; i < 4; ++i)  // the kernel says that there is room again once much of it was read
        EXPECT_GT(recv(busy.far, bytes.data(), bytes.size(), 0), 0);
    while (send(busy.near, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
    }
    const HeldUp found = break_held_up(outer_, host("127.0.0.1"), Break::still);
    EXPECT_EQ(found.broken, 0U);
    EXPECT_EQ(found.full, 1U);
    EXPECT_FALSE(ended(busy.near));
    EXPECT_EQ(break_held_up(outer_, host("127.0.0.1"), Break::full).broken, 1U);
    EXPECT_TRUE(ended(busy.near));
}

TEST_F(HeldUpTest, WhatHasRoomAndIsWaitedForIsCounted) {
    const Connection busy = connect_to("127.0.0.1", EPOLLIN | EPOLLOUT);
    const HeldUp found = break_held_up(outer_, host("127.0.0.1"), Break::still);
    EXPECT_EQ(found.broken, 0U);
    EXPECT_EQ(found.waiting, 1U);
    EXPECT_FALSE(ended(busy.near));
}

TEST_F(HeldUpTest, OtherDescriptorsAndNoneAreFine) {
    int pipes[2];
    ASSERT_EQ(pipe(pipes), 0);
    watch(inner_, pipes[0], EPOLLIN);
    open_.insert(open_.end(), {pipes[0], pipes[1]});
    const int unconnected = socket(AF_INET, SOCK_STREAM, 0);
    watch(inner_, unconnected, EPOLLIN);
    open_.push_back(unconnected);
    EXPECT_EQ(break_held_up(outer_, host("127.0.0.1"), Break::still).broken, 0U);
    EXPECT_EQ(break_held_up(-1, host("127.0.0.1"), Break::full).broken, 0U);
    EXPECT_EQ(break_held_up(outer_, HostAddress{}, Break::full).broken, 0U);
}

}  // namespace
}  // namespace flx::ucx

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
#include <vector>

namespace flx::ucx {
namespace {

uint32_t ipv4(const char *text) {
    in_addr address{};
    EXPECT_EQ(inet_pton(AF_INET, text, &address), 1);
    return address.s_addr;
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

    Connection connect_to(uint32_t address, uint32_t events = EPOLLIN) {
        const int listener = socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = address;
        socklen_t bytes = sizeof at;
        EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr *>(&at), sizeof at), 0);
        EXPECT_EQ(listen(listener, 1), 0);
        EXPECT_EQ(getsockname(listener, reinterpret_cast<sockaddr *>(&at), &bytes), 0);
        Connection made;
        made.near = socket(AF_INET, SOCK_STREAM, 0);
        EXPECT_EQ(connect(made.near, reinterpret_cast<sockaddr *>(&at), sizeof at), 0);
        made.far = accept(listener, nullptr, nullptr);
        EXPECT_GE(made.far, 0);
        fcntl(made.near, F_SETFL, O_NONBLOCK);
        fcntl(made.far, F_SETFL, O_NONBLOCK);
        watch(inner_, made.near, events);
        open_.insert(open_.end(), {listener, made.near, made.far});
        return made;
    }

    static void fill(int fd) {
        const std::vector<char> bytes(1 << 16);
        while (send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) {
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

TEST_F(HeldUpTest, WhatHasNoRoomIsBrokenAndNothingElse) {
    const Connection full = connect_to(ipv4("127.0.0.1"));
    const Connection idle = connect_to(ipv4("127.0.0.1"));
    const Connection elsewhere = connect_to(ipv4("127.0.0.2"));
    fill(full.near);
    fill(elsewhere.near);
    const HeldUp found = break_held_up(outer_, ipv4("127.0.0.1"));
    EXPECT_EQ(found.broken, 1U);
    EXPECT_EQ(found.waiting, 0U);
    EXPECT_TRUE(ended(full.near));
    EXPECT_FALSE(ended(idle.near));
    EXPECT_FALSE(ended(elsewhere.near));
    // It counts until whoever watches it has closed it.
    EXPECT_EQ(break_held_up(outer_, ipv4("127.0.0.1")).broken, 1U);
    epoll_ctl(inner_, EPOLL_CTL_DEL, full.near, nullptr);
    EXPECT_EQ(break_held_up(outer_, ipv4("127.0.0.1")).broken, 0U);
}

TEST_F(HeldUpTest, WhatWasNotDeliveredIsLost) {
    const Connection full = connect_to(ipv4("127.0.0.1"));
    fill(full.near);
    break_held_up(outer_, ipv4("127.0.0.1"));
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

TEST_F(HeldUpTest, WhatHasRoomAndIsWaitedForIsCounted) {
    const Connection busy = connect_to(ipv4("127.0.0.1"), EPOLLIN | EPOLLOUT);
    const HeldUp found = break_held_up(outer_, ipv4("127.0.0.1"));
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
    EXPECT_EQ(break_held_up(outer_, ipv4("127.0.0.1")).broken, 0U);
    EXPECT_EQ(break_held_up(-1, ipv4("127.0.0.1")).broken, 0U);
    EXPECT_EQ(break_held_up(outer_, 0).broken, 0U);
}

}  // namespace
}  // namespace flx::ucx

#include "ucx_glue/held_up.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace flx::ucx {

namespace {

constexpr int kDeepest = 3;  // UCX: a worker's watches one of each interface, which watches connections

struct Watched {
    int fd = -1;
    unsigned events = 0;
};

/// What a descriptor of epoll watches: the kernel's own list (proc(5), fdinfo). Empty for other descriptors.
std::vector<Watched> watched_by(int events) {
    std::vector<Watched> list;
    std::ifstream info(fmt::format("/proc/self/fdinfo/{}", events));
    for (std::string line; std::getline(info, line);) {
        Watched each;
        if (std::sscanf(line.c_str(), "tfd: %d events: %x", &each.fd, &each.events) == 2)
            list.push_back(each);
    }
    return list;
}

enum class Kind : uint8_t { no_socket, to_host, other };

Kind kind_of(int fd, uint32_t ipv4) {
    sockaddr_storage address{};
    socklen_t bytes = sizeof address;
    if (getpeername(fd, reinterpret_cast<sockaddr *>(&address), &bytes) != 0)
        return errno == ENOTSOCK ? Kind::no_socket : Kind::other;
    const bool same = address.ss_family == AF_INET && reinterpret_cast<sockaddr_in &>(address).sin_addr.s_addr == ipv4;
    return same ? Kind::to_host : Kind::other;
}

bool stands_still(int fd) {
    constexpr uint32_t kStillMs = 100;
    tcp_info info{};
    socklen_t bytes = sizeof info;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 && info.tcpi_last_ack_recv >= kStillMs;
}

bool is(int fd, short events) {
    pollfd asked{fd, events, 0};
    return poll(&asked, 1, 0) == 1 && (asked.revents & events) != 0;
}

void break_off(int fd) {
    const linger at_once{1, 0};  // what was not delivered is not to be delivered later
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    shutdown(fd, SHUT_RDWR);
}

void break_held_up(int events, uint32_t ipv4, Break which, int deep, HeldUp &found) {
    for (const Watched &each : watched_by(events)) {
        const Kind kind = kind_of(each.fd, ipv4);
        if (kind == Kind::no_socket && deep < kDeepest)
            break_held_up(each.fd, ipv4, which, deep + 1, found);
        if (kind != Kind::to_host)
            continue;
        if (is(each.fd, POLLRDHUP | POLLHUP | POLLERR)) {
            ++found.broken;
        } else if (is(each.fd, POLLOUT)) {
            found.waiting += (each.events & EPOLLOUT) != 0 ? 1 : 0;
        } else if (which == Break::full || stands_still(each.fd)) {
            break_off(each.fd);
            ++found.broken;
        } else {
            ++found.full;
        }
    }
}

}  // namespace

HeldUp break_held_up(int events, uint32_t ipv4, Break which) {
    HeldUp found;
    if (events >= 0 && ipv4 != 0)
        break_held_up(events, ipv4, which, 1, found);
    return found;
}

}  // namespace flx::ucx

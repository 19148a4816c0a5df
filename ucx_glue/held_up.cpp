#include "ucx_glue/held_up.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
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

Kind kind_of(int fd, const HostAddress &address) {
    sockaddr_storage peer{};
    socklen_t bytes = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr *>(&peer), &bytes) != 0)
        return errno == ENOTSOCK ? Kind::no_socket : Kind::other;
    return host_of(reinterpret_cast<sockaddr &>(peer)) == address ? Kind::to_host : Kind::other;
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

void break_held_up(int events, const HostAddress &address, Break which, int deep, HeldUp &found) {
    for (const Watched &each : watched_by(events)) {
        const Kind kind = kind_of(each.fd, address);
        if (kind == Kind::no_socket && deep < kDeepest)
            break_held_up(each.fd, address, which, deep + 1, found);
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

HeldUp break_held_up(int events, const HostAddress &address, Break which) {
    HeldUp found;
    if (events >= 0 && address != HostAddress{})
        break_held_up(events, address, which, 1, found);
    return found;
}

HostAddress host_of(const sockaddr &address) {
    HostAddress host{};
    if (address.sa_family == AF_INET) {
        sockaddr_in ipv4;
        std::memcpy(&ipv4, &address, sizeof ipv4);
        host = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
        std::memcpy(&host[12], &ipv4.sin_addr, sizeof ipv4.sin_addr);
    } else if (address.sa_family == AF_INET6) {
        sockaddr_in6 ipv6;
        std::memcpy(&ipv6, &address, sizeof ipv6);
        if (!IN6_IS_ADDR_LINKLOCAL(&ipv6.sin6_addr))
            std::memcpy(host.data(), &ipv6.sin6_addr, host.size());
    }
    return host;
}

}  // namespace flx::ucx

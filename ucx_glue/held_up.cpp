#include "ucx_glue/held_up.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

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

bool connects_to(int fd, uint32_t ipv4) {
    sockaddr_storage address{};
    socklen_t bytes = sizeof address;
    if (getpeername(fd, reinterpret_cast<sockaddr *>(&address), &bytes) != 0 || address.ss_family != AF_INET)
        return false;
    return reinterpret_cast<const sockaddr_in &>(address).sin_addr.s_addr == ipv4;
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

void break_held_up(int events, uint32_t ipv4, int deep, HeldUp &found) {
    for (const Watched &each : watched_by(events)) {
        if (!connects_to(each.fd, ipv4)) {
            if (deep < kDeepest)
                break_held_up(each.fd, ipv4, deep + 1, found);
        } else if (is(each.fd, POLLRDHUP | POLLHUP | POLLERR)) {
            ++found.broken;
        } else if (!is(each.fd, POLLOUT)) {
            break_off(each.fd);
            ++found.broken;
        } else if ((each.events & EPOLLOUT) != 0) {
            ++found.waiting;
        }
    }
}

}  // namespace

HeldUp break_held_up(int events, uint32_t ipv4) {
    HeldUp found;
    if (events >= 0 && ipv4 != 0)
        break_held_up(events, ipv4, 1, found);
    return found;
}

}  // namespace flx::ucx

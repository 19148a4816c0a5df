#include "probe/routes.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <utility>

namespace flx::probe {
namespace {

/// An address of either family.
struct Address {
    sockaddr_storage storage{};
    socklen_t bytes = 0;

    [[nodiscard]] sockaddr *get() { return reinterpret_cast<sockaddr *>(&storage); }
    [[nodiscard]] bool valid() const { return bytes != 0; }
};

Address address_of(const std::string &text, uint16_t port) {
    Address address;
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    addrinfo *found = nullptr;
    if (getaddrinfo(text.c_str(), std::to_string(port).c_str(), &hints, &found) != 0 || found == nullptr)
        return address;
    std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
    address.bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return address;
}

/// Whether the address of a connected socket on this host is `from`.
bool is_from(int socket, const std::string &from) {
    Address own;
    own.bytes = sizeof own.storage;
    std::array<char, NI_MAXHOST> text{};
    return getsockname(socket, own.get(), &own.bytes) == 0 &&
           getnameinfo(own.get(), own.bytes, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0 &&
           from == text.data();
}

int open_socket(Address &to, int kind) {
    return ::socket(to.get()->sa_family, kind | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

}  // namespace

bool is_route(const std::string &from, const std::string &to) {
    constexpr uint16_t kAnyPort = 9;
    Address address = address_of(to, kAnyPort);
    const int socket = address.valid() ? open_socket(address, SOCK_DGRAM) : -1;
    if (socket < 0)
        return false;
    const bool found = connect(socket, address.get(), address.bytes) == 0 && is_from(socket, from);
    close(socket);
    return found;
}

Doors::~Doors() {
    for (const int socket : sockets_)
        close(socket);
}

Status Doors::open(const std::string &address, uint16_t &port) {
    Address own = address_of(address, 0);
    const int socket = own.valid() ? open_socket(own, SOCK_STREAM) : -1;
    if (socket < 0)
        return fail(Fault::no_socket, "no socket for {}: {}", address, std::strerror(errno));
    sockets_.push_back(socket);
    if (bind(socket, own.get(), own.bytes) != 0 || listen(socket, SOMAXCONN) != 0 ||
        getsockname(socket, own.get(), &own.bytes) != 0)
        return fail(Fault::no_socket, "cannot listen at {}: {}", address, std::strerror(errno));
    const bool six = own.get()->sa_family == AF_INET6;
    port = ntohs(six ? reinterpret_cast<sockaddr_in6 &>(own.storage).sin6_port
                     : reinterpret_cast<sockaddr_in &>(own.storage).sin_port);
    return {};
}

namespace {

/// So many at a time, of this host's descriptors.
void try_some(std::span<Attempt> attempts, std::chrono::steady_clock::time_point end) {
    std::vector<pollfd> open(attempts.size(), pollfd{-1, POLLOUT, 0});
    const auto finish = [&](size_t i, int code) {
        Attempt &attempt = attempts[i];
        attempt.reached = code == 0 && is_from(open[i].fd, attempt.from);
        if (!attempt.reached)
            attempt.why = code != 0 ? std::strerror(code) : "another device leads there";
        close(std::exchange(open[i].fd, -1));
    };
    for (size_t i = 0; i < attempts.size(); ++i) {
        Address to = address_of(attempts[i].to, attempts[i].port);
        open[i].fd = to.valid() ? open_socket(to, SOCK_STREAM) : -1;
        if (open[i].fd < 0) {
            attempts[i].why = to.valid() ? std::strerror(errno) : "no address";
            continue;
        }
        const int code = connect(open[i].fd, to.get(), to.bytes) == 0 ? 0 : errno;
        if (code != EINPROGRESS)
            finish(i, code);
    }
    const auto waits = [&] { return std::any_of(open.begin(), open.end(), [](auto &each) { return each.fd >= 0; }); };
    while (waits()) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
        if (left.count() <= 0 || (poll(open.data(), open.size(), static_cast<int>(left.count())) < 0 && errno != EINTR))
            break;
        for (size_t i = 0; i < open.size(); ++i) {
            if (open[i].fd < 0 || open[i].revents == 0)
                continue;
            int code = 0;
            socklen_t bytes = sizeof code;
            getsockopt(open[i].fd, SOL_SOCKET, SO_ERROR, &code, &bytes);
            finish(i, code);
        }
    }
    for (size_t i = 0; i < open.size(); ++i)
        if (open[i].fd >= 0)
            finish(i, ETIMEDOUT);
}

}  // namespace

void try_connections(std::vector<Attempt> &attempts, int limit_ms) {
    constexpr size_t kAtOnce = 128;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(limit_ms);
    for (size_t first = 0; first < attempts.size(); first += kAtOnce)
        try_some(std::span(attempts).subspan(first, std::min(kAtOnce, attempts.size() - first)), end);
}

}  // namespace flx::probe

#include "runtime/store/wire.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

namespace flx::store {
namespace {

constexpr int kBacklog = 1024;

struct FreeAddresses {
    void operator()(addrinfo *list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

/// Empty: `why` says what the resolver said.
Addresses look_up(const Place &place, std::string &why) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    wanted.ai_flags = AI_NUMERICSERV;
    addrinfo *found = nullptr;
    const int error = getaddrinfo(place.address.c_str(), std::to_string(place.port).c_str(), &wanted, &found);
    if (error != 0)
        why = error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error);
    return Addresses(error == 0 ? found : nullptr);
}

bool is_loopback(const sockaddr *address) {
    if (address->sa_family == AF_INET)
        return ntohl(reinterpret_cast<const sockaddr_in *>(address)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6 *>(address)->sin6_addr);
}

bool is_number(const std::string &address) {
    in6_addr parsed;
    return inet_pton(AF_INET, address.c_str(), &parsed) == 1 || inet_pton(AF_INET6, address.c_str(), &parsed) == 1;
}

/// All interfaces, of IPv4 and IPv6 where `family` is that of the latter.
sockaddr_storage everywhere(int family, int port) {
    sockaddr_storage any{};
    any.ss_family = static_cast<sa_family_t>(family);
    if (family == AF_INET)
        reinterpret_cast<sockaddr_in *>(&any)->sin_port = htons(static_cast<uint16_t>(port));
    else
        reinterpret_cast<sockaddr_in6 *>(&any)->sin6_port = htons(static_cast<uint16_t>(port));
    return any;
}

/// 0, or what the system says.
int listen_one(const sockaddr *at, socklen_t length, OwnDescriptor &socket) {
    socket.take([&] { return ::socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
    const int on = 1;
    const int off = 0;
    setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at->sa_family == AF_INET6)
        setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (socket.get() >= 0 && bind(socket.get(), at, length) == 0 && listen(socket.get(), kBacklog) == 0)
        return 0;
    const int error = errno;
    socket.close();
    return error;
}

/// Whether any of the addresses of a name is one of this host.
bool is_of_this_host(const addrinfo *of) {
    for (; of != nullptr; of = of->ai_next) {
        sockaddr_storage at{};
        std::memcpy(&at, of->ai_addr, of->ai_addrlen);
        // The port does not matter, and another may have it.
        (at.ss_family == AF_INET ? reinterpret_cast<sockaddr_in *>(&at)->sin_port
                                 : reinterpret_cast<sockaddr_in6 *>(&at)->sin6_port) = 0;
        OwnDescriptor socket;
        socket.take([&] { return ::socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0); });
        if (bind(socket.get(), reinterpret_cast<sockaddr *>(&at), of->ai_addrlen) == 0)
            return true;
    }
    return false;
}

/// A socket whose own port is the one that it connects to meets itself where nobody listens.
bool is_to_itself(int fd) {
    sockaddr_storage own{};
    sockaddr_storage other{};
    socklen_t own_length = sizeof own;
    socklen_t other_length = sizeof other;
    return getsockname(fd, reinterpret_cast<sockaddr *>(&own), &own_length) == 0 &&
           getpeername(fd, reinterpret_cast<sockaddr *>(&other), &other_length) == 0 && own_length == other_length &&
           std::memcmp(&own, &other, own_length) == 0;
}

/// 0, or what the system says of a connection that is being made.
int made_within(int fd, double seconds, const Meanwhile &meanwhile) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    pollfd wait{fd, POLLOUT, 0};
    for (;;) {
        const double left = std::chrono::duration<double>(until - std::chrono::steady_clock::now()).count();
        if (poll(&wait, 1, meanwhile ? 0 : static_cast<int>(std::max(left, 0.0) * 1e3)) > 0)
            break;
        if (left <= 0)
            return ETIMEDOUT;
        if (meanwhile && !meanwhile().ok())
            return ECANCELED;
        sched_yield();
    }
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    return error;
}

bool connect_one(const addrinfo &to, double seconds, const Meanwhile &meanwhile, OwnDescriptor &result,
                 std::string &why) {
    result.take([&] { return socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
    int error = result.get() < 0 || connect(result.get(), to.ai_addr, to.ai_addrlen) != 0 ? errno : 0;
    if (error == EINPROGRESS)
        error = made_within(result.get(), seconds, meanwhile);
    if (error == 0 && is_to_itself(result.get()))
        error = ECONNREFUSED;
    if (error == 0)
        return true;
    why = std::strerror(error);
    result.close();
    return false;
}

}  // namespace

Incoming::Ended Incoming::read(int fd, size_t most) {
    constexpr size_t kPiece = 1 << 14;
    std::array<std::byte, kPiece> piece;
    bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(taken_));
    taken_ = 0;
    while (bytes_.size() < most) {
        const size_t wanted = std::min(kPiece, most - bytes_.size());
        const ssize_t came = recv(fd, piece.data(), wanted, MSG_DONTWAIT);
        if (came == 0 || (came < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
            return Ended::closed;
        if (came > 0)
            bytes_.insert(bytes_.end(), piece.begin(), piece.begin() + came);
        if (came < static_cast<ssize_t>(wanted))
            break;
    }
    return Ended::no;
}

bool Incoming::next(Frame &frame, uint32_t most, Ended &ended) {
    ended = Ended::no;
    const size_t there = bytes_.size() - taken_;
    // What is no store or no rank is known by its first bytes.
    const uint32_t magic = Header::kMagic;
    if (there > 0 && std::memcmp(bytes_.data() + taken_, &magic, std::min(there, sizeof magic)) != 0) {
        ended = Ended::foreign;
        return false;
    }
    if (there < sizeof(Header))
        return false;
    std::memcpy(&frame.header, bytes_.data() + taken_, sizeof(Header));
    if (frame.header.version != Header::kVersion || frame.header.bytes > most) {
        ended = Ended::foreign;
        return false;
    }
    if (there - sizeof(Header) < frame.header.bytes)
        return false;
    const auto *begin = bytes_.data() + taken_ + sizeof(Header);
    frame.payload.assign(begin, begin + frame.header.bytes);
    taken_ += sizeof(Header) + frame.header.bytes;
    return true;
}

std::string Incoming::beginning() const {
    constexpr size_t kMost = 24;
    std::string text;
    for (size_t at = taken_; at < bytes_.size() && text.size() < kMost; ++at) {
        const auto byte = static_cast<unsigned char>(bytes_[at]);
        text += std::isprint(byte) != 0 ? static_cast<char>(byte) : '.';
    }
    return text;
}

void Outgoing::put(const Header &header, std::span<const std::byte> payload) {
    const auto *begin = reinterpret_cast<const std::byte *>(&header);
    auto frame = std::make_shared<std::vector<std::byte>>();
    frame->reserve(sizeof header + payload.size());
    frame->assign(begin, begin + sizeof header);
    frame->insert(frame->end(), payload.begin(), payload.end());
    pieces_.push_back(std::move(frame));
}

void Outgoing::put(const Header &header, std::shared_ptr<const std::vector<std::byte>> payload) {
    put(header, std::span<const std::byte>());
    if (!payload->empty())
        pieces_.push_back(std::move(payload));
}

bool Outgoing::send_some(int fd) {
    constexpr size_t kAtOnce = 16;
    while (!pieces_.empty()) {
        std::array<iovec, kAtOnce> parts;
        msghdr message{};
        message.msg_iov = parts.data();
        size_t skipped = sent_;
        for (; message.msg_iovlen < std::min(kAtOnce, pieces_.size()); ++message.msg_iovlen) {
            const std::vector<std::byte> &bytes = *pieces_[message.msg_iovlen];
            parts[message.msg_iovlen] = {const_cast<std::byte *>(bytes.data()) + skipped, bytes.size() - skipped};
            skipped = 0;
        }
        const ssize_t went = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (went < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        sent_ += static_cast<size_t>(went);
        while (!pieces_.empty() && sent_ >= pieces_.front()->size()) {
            sent_ -= pieces_.front()->size();
            pieces_.pop_front();
        }
    }
    return true;
}

Status listen_at(const Place &place, OwnDescriptor &socket) {
    std::string why;
    const Addresses found = look_up(place, why);
    const bool name = place.address != "localhost" && !is_number(place.address);
    const bool wide = name && found && (found->ai_next != nullptr || is_loopback(found->ai_addr));
    int error = 0;
    if (wide && is_of_this_host(found.get())) {
        for (const int family : {AF_INET6, AF_INET}) {
            const sockaddr_storage any = everywhere(family, place.port);
            error = listen_one(reinterpret_cast<const sockaddr *>(&any),
                               family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6), socket);
            if (error == 0)
                return {};
        }
    } else {
        for (const addrinfo *at = found.get(); at != nullptr; at = at->ai_next) {
            error = listen_one(at->ai_addr, at->ai_addrlen, socket);
            if (error == 0)
                return {};
        }
    }
    if (error != 0)
        why = fmt::format("{}{}", std::strerror(error),
                          error == EADDRINUSE ? "; another program, or another process whose rank is 0, has the port"
                          : error == EADDRNOTAVAIL ? "; rank 0 has to run on the host of this address"
                                                   : "");
    return fail(Fault::no_store, "rank 0 cannot listen at {} for the store in which ranks meet: {}", place.text(), why);
}

bool connect_to(const Place &place, double seconds, const Meanwhile &meanwhile, OwnDescriptor &socket,
                std::string &why) {
    const Addresses found = look_up(place, why);
    for (const addrinfo *to = found.get(); to != nullptr; to = to->ai_next)
        if (connect_one(*to, seconds, meanwhile, socket, why)) {
            tune(socket.get());
            return true;
        }
    return false;
}

void tune(int fd) {
    constexpr int kIdleS = 10, kBetweenS = 5, kTries = 3;
    const auto set = [&](int level, int option, int value) { setsockopt(fd, level, option, &value, sizeof value); };
    set(IPPROTO_TCP, TCP_NODELAY, 1);
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, kIdleS);
    set(IPPROTO_TCP, TCP_KEEPINTVL, kBetweenS);
    set(IPPROTO_TCP, TCP_KEEPCNT, kTries);
    // Nothing is asked while something that was sent is unanswered.
    set(IPPROTO_TCP, TCP_USER_TIMEOUT, (kIdleS + kTries * kBetweenS) * 1000);
}

std::string peer_of(int fd) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    std::array<char, NI_MAXHOST> host{};
    std::array<char, NI_MAXSERV> port{};
    if (getpeername(fd, reinterpret_cast<sockaddr *>(&address), &length) != 0 ||
        getnameinfo(reinterpret_cast<sockaddr *>(&address), length, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return "an unknown address";
    return fmt::format("{}:{}", host.data(), port.data());
}

std::string ranks_text(const std::vector<int> &ranks) {
    constexpr size_t kNamed = 16;
    if (ranks.size() == 1)
        return fmt::format("rank {}", ranks.front());
    const size_t named = std::min(ranks.size(), kNamed);
    const bool all = named == ranks.size();
    std::string text = "ranks ";
    for (size_t i = 0; i < named; ++i)
        text += fmt::format("{}{}", i == 0 ? "" : all && i + 1 == named ? " and " : ", ", ranks[i]);
    return all ? text : text + fmt::format(" and {} more", ranks.size() - named);
}

}  // namespace flx::store

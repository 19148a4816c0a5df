#include "runtime/store/wire.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <memory>
#include <ranges>
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

/// All interfaces, of the same family.
void widen(sockaddr *address) {
    if (address->sa_family == AF_INET)
        reinterpret_cast<sockaddr_in *>(address)->sin_addr.s_addr = htonl(INADDR_ANY);
    else
        reinterpret_cast<sockaddr_in6 *>(address)->sin6_addr = in6addr_any;
}

bool connect_one(const addrinfo &to, double seconds, OwnDescriptor &result, std::string &why) {
    result.take([&] { return socket(to.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
    if (result.get() >= 0) {
        if (connect(result.get(), to.ai_addr, to.ai_addrlen) == 0)
            return true;
        if (errno == EINPROGRESS) {
            pollfd wait{result.get(), POLLOUT, 0};
            int error = ETIMEDOUT;
            socklen_t length = sizeof error;
            if (poll(&wait, 1, static_cast<int>(seconds * 1e3)) > 0)
                getsockopt(result.get(), SOL_SOCKET, SO_ERROR, &error, &length);
            if (error == 0)
                return true;
            errno = error;
        }
    }
    why = std::strerror(errno);
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
    if (std::memcmp(bytes_.data() + taken_, &magic, std::min(there, sizeof magic)) != 0) {
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
        for (const auto &bytes : pieces_ | std::views::take(kAtOnce)) {
            parts[message.msg_iovlen++] = {const_cast<std::byte *>(bytes->data()) + skipped, bytes->size() - skipped};
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
    for (addrinfo *at = found.get(); at != nullptr; at = at->ai_next) {
        if (name && is_loopback(at->ai_addr))
            widen(at->ai_addr);
        socket.take([&] { return ::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
        const int on = 1;
        setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (bind(socket.get(), at->ai_addr, at->ai_addrlen) == 0 && listen(socket.get(), kBacklog) == 0)
            return {};
        const bool taken = errno == EADDRINUSE;
        const bool elsewhere = errno == EADDRNOTAVAIL;
        why = fmt::format("{}{}", std::strerror(errno),
                          taken       ? "; another program, or another process whose rank is 0, has the port"
                          : elsewhere ? "; rank 0 has to run on the host of this address"
                                      : "");
        socket.close();
    }
    return fail(Fault::no_store, "rank 0 cannot listen at {} for the store in which ranks meet: {}", place.text(), why);
}

bool connect_to(const Place &place, double seconds, OwnDescriptor &socket, std::string &why) {
    const Addresses found = look_up(place, why);
    for (const addrinfo *to = found.get(); to != nullptr; to = to->ai_next)
        if (connect_one(*to, seconds, socket, why)) {
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

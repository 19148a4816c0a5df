#include "runtime/process/liveness_doors.h"

#include <linux/errqueue.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace flx::liveness {
namespace {

constexpr int kTries = 16;  // for a port that is free for both sockets
constexpr int kBacklog = 64;

int family_of(const Address &address) {
    return is_ipv4(address) ? AF_INET : AF_INET6;
}

bool bind_to(int fd, const Address &at) {
    sockaddr_storage address;
    const socklen_t length = to_socket_address(at, address);
    return bind(fd, reinterpret_cast<sockaddr *>(&address), length) == 0;
}

/// A message of one part with room for what the system says beside it.
struct Message {
    Message(std::byte *bytes, size_t length) : part{bytes, length} {
        header.msg_name = &address;
        header.msg_namelen = sizeof address;
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        header.msg_control = control.data();
        header.msg_controllen = control.size();
    }
    /// Gives the system `info` beside what is sent, and nothing else.
    template <typename Info>
    void control_is(int level, int type, const Info &info) {
        header.msg_controllen = CMSG_SPACE(sizeof info);
        cmsghdr *first = CMSG_FIRSTHDR(&header);
        first->cmsg_level = level;
        first->cmsg_type = type;
        first->cmsg_len = CMSG_LEN(sizeof info);
        std::memcpy(CMSG_DATA(first), &info, sizeof info);
    }
    template <typename Info>
    static Info control_of(cmsghdr &from) {
        Info info;
        std::memcpy(&info, CMSG_DATA(&from), sizeof info);
        return info;
    }
    sockaddr_storage address{};
    iovec part;
    alignas(cmsghdr) std::array<std::byte, 512> control{};
    msghdr header{};
};

}  // namespace

Status Door::open(const Address &at, std::unique_ptr<Door> &result) {
    auto door = std::make_unique<Door>();
    const int family = family_of(at);
    const int on = 1;
    for (int attempt = 0; attempt < kTries; ++attempt) {
        door->address_ = at;
        door->address_.port = 0;
        door->datagrams_.take([&] { return socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
        door->connections_.take([&] { return socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
        const int udp = door->datagrams(), tcp = door->connections();
        if (udp < 0 || tcp < 0)
            break;
        const bool told = family == AF_INET
                              ? setsockopt(udp, IPPROTO_IP, IP_RECVERR, &on, sizeof on) == 0 &&
                                    setsockopt(udp, IPPROTO_IP, IP_PKTINFO, &on, sizeof on) == 0
                              : setsockopt(udp, IPPROTO_IPV6, IPV6_RECVERR, &on, sizeof on) == 0 &&
                                    setsockopt(udp, IPPROTO_IPV6, IPV6_RECVPKTINFO, &on, sizeof on) == 0 &&
                                    setsockopt(udp, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0 &&
                                    setsockopt(tcp, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0;
        sockaddr_storage bound{};
        socklen_t length = sizeof bound;
        if (!told || !bind_to(udp, door->address_) ||
            getsockname(udp, reinterpret_cast<sockaddr *>(&bound), &length) != 0)
            break;
        door->address_.port = from_socket_address(bound).port;
        if (bind_to(tcp, door->address_) && listen(tcp, kBacklog) == 0) {
            result = std::move(door);
            return {};
        }
        if (errno != EADDRINUSE)
            break;
    }
    return fail(Fault::no_socket, "cannot listen at {} for liveness: {}", to_text(at), std::strerror(errno));
}

bool Door::send(std::span<const std::byte> bytes, const Address &to) const {
    sockaddr_storage address;
    const socklen_t length = to_socket_address(to, address);
    // An error that an earlier datagram met is reported here, and this one is not sent.
    for (int attempt = 0; attempt < 4; ++attempt)
        if (sendto(datagrams(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                   reinterpret_cast<const sockaddr *>(&address), length) >= 0 ||
            errno == EAGAIN || errno == ENOBUFS)
            return true;
    return false;
}

void Door::send_by(std::span<const std::byte> bytes, const Address &to, uint32_t device) const {
    Message message(const_cast<std::byte *>(bytes.data()), bytes.size());
    message.header.msg_namelen = to_socket_address(to, message.address);
    if (is_ipv4(address_)) {
        in_pktinfo info{};
        info.ipi_ifindex = static_cast<int>(device);
        info.ipi_spec_dst.s_addr = ipv4_of(address_);
        message.control_is(IPPROTO_IP, IP_PKTINFO, info);
    } else {
        in6_pktinfo info{};
        info.ipi6_ifindex = device;
        std::memcpy(&info.ipi6_addr, address_.host.data(), address_.host.size());
        message.control_is(IPPROTO_IPV6, IPV6_PKTINFO, info);
    }
    for (int attempt = 0; attempt < 4; ++attempt)
        if (sendmsg(datagrams(), &message.header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno == EAGAIN)
            return;
}

ssize_t Door::receive(std::span<std::byte> bytes, Came &came) const {
    Message message(bytes.data(), bytes.size());
    const ssize_t received = recvmsg(datagrams(), &message.header, MSG_DONTWAIT);
    if (received < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EBADF ? -1 : -2;
    came = {from_socket_address(message.address), 0};
    for (cmsghdr *header = CMSG_FIRSTHDR(&message.header); header != nullptr;
         header = CMSG_NXTHDR(&message.header, header)) {
        if (header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_PKTINFO)
            came.device = static_cast<uint32_t>(Message::control_of<in_pktinfo>(*header).ipi_ifindex);
        else if (header->cmsg_level == IPPROTO_IPV6 && header->cmsg_type == IPV6_PKTINFO)
            came.device = Message::control_of<in6_pktinfo>(*header).ipi6_ifindex;
    }
    return received;
}

bool Door::next_refused(Address &to) const {
    for (;;) {
        std::array<std::byte, 8> payload;
        Message message(payload.data(), payload.size());
        if (recvmsg(datagrams(), &message.header, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
            return false;
        for (cmsghdr *header = CMSG_FIRSTHDR(&message.header); header != nullptr;
             header = CMSG_NXTHDR(&message.header, header)) {
            const bool ipv4 = header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_RECVERR;
            const bool ipv6 = header->cmsg_level == IPPROTO_IPV6 && header->cmsg_type == IPV6_RECVERR;
            if (!ipv4 && !ipv6)
                continue;
            const auto error = Message::control_of<sock_extended_err>(*header);
            const bool by_network = error.ee_origin == SO_EE_ORIGIN_ICMP || error.ee_origin == SO_EE_ORIGIN_ICMP6;
            if (!by_network || error.ee_errno != ECONNREFUSED)
                continue;
            to = from_socket_address(message.address);  // where the datagram went
            return true;
        }
    }
}

std::optional<Address> source_towards(const Address &to) {
    sockaddr_storage address;
    socklen_t length = to_socket_address(to, address);
    const int fd = socket(family_of(to), SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return std::nullopt;
    std::optional<Address> source;
    // A datagram socket's connect sends nothing.
    if (connect(fd, reinterpret_cast<sockaddr *>(&address), length) == 0) {
        length = sizeof address;
        if (getsockname(fd, reinterpret_cast<sockaddr *>(&address), &length) == 0) {
            source = from_socket_address(address);
            source->port = 0;
        }
    }
    close(fd);
    return source;
}

}  // namespace flx::liveness

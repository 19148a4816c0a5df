#include "runtime/process/liveness_stream.h"

#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace flx::liveness {

Stream::Stream(const Address &to, uint64_t peer) : peer(peer), to_(to) {
    sockaddr_storage address;
    const socklen_t length = to_socket_address(to, address);
    socket_.take(
        [&] { return socket(is_ipv4(to) ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
    if (descriptor() < 0)
        return;
    const int on = 1;
    setsockopt(descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(descriptor(), reinterpret_cast<sockaddr *>(&address), length) == 0)
        state_ = State::open;
    else if (errno == EINPROGRESS)
        state_ = State::connecting;
    else
        refused_ = errno == ECONNREFUSED;
}

Stream::Stream(int listener) {
    socket_.take([&] { return accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
    if (descriptor() < 0)
        return;
    const int on = 1;
    setsockopt(descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    state_ = State::open;
}

void Stream::settle() {
    int error = 0;
    socklen_t length = sizeof error;
    if (getsockopt(descriptor(), SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) {
        refused_ = error == ECONNREFUSED;
        state_ = State::ended;
    } else {
        state_ = State::open;
    }
}

void Stream::fill() {
    std::copy(bytes_.begin() + static_cast<std::ptrdiff_t>(begin_), bytes_.begin() + static_cast<std::ptrdiff_t>(end_),
              bytes_.begin());
    end_ -= begin_;
    begin_ = 0;
    const ssize_t received = recv(descriptor(), bytes_.data() + end_, bytes_.size() - end_, MSG_DONTWAIT);
    if (received > 0)
        end_ += static_cast<size_t>(received);
    else if (received == 0 || (errno != EAGAIN && errno != EINTR))
        state_ = State::ended;
}

std::span<const std::byte> Stream::next() {
    Length length = 0;
    if (end_ - begin_ < sizeof length)
        return {};
    std::memcpy(&length, bytes_.data() + begin_, sizeof length);
    if (length < kSealBytes || length > kMostBytes) {
        state_ = State::ended;
        return {};
    }
    if (end_ - begin_ < sizeof length + length)
        return {};
    const auto message = std::span(bytes_).subspan(begin_ + sizeof length, length);
    begin_ += sizeof length + length;
    return message;
}

void Stream::send(std::span<const std::byte> sealed) {
    if (state_ != State::open || !rest_.empty())
        return;
    const auto length = static_cast<Length>(sealed.size());
    rest_.resize(sizeof length + sealed.size());
    std::memcpy(rest_.data(), &length, sizeof length);
    std::copy(sealed.begin(), sealed.end(), rest_.begin() + sizeof length);
    flush();
}

void Stream::flush() {
    if (rest_.empty())
        return;
    const ssize_t sent = ::send(descriptor(), rest_.data(), rest_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0)
        rest_.erase(rest_.begin(), rest_.begin() + sent);
    else if (errno != EAGAIN && errno != EINTR)
        state_ = State::ended;
}

}  // namespace flx::liveness

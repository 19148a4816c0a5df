/// \file descriptors.h
/// File descriptors of somebody else's process: how many files and connections it may still open, and descriptors that
/// belong to it alone, as children that the program forks do not keep them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace flx {

/// Rails over TCP take two descriptors for each peer.
struct Descriptors {
    size_t open = 0;
    size_t allowed = 0;  ///< at a time

    /// Left to the program, and to connections of which both ends make one at once.
    static constexpr size_t kReserve = 32;
    [[nodiscard]] size_t spare() const { return allowed > open + kReserve ? allowed - open - kReserve : 0; }
};

/// The descriptors of this process. Where fewer than `wanted` are to spare, its soft limit (`ulimit -Sn`) is raised to
/// the hard one first. The soft limit protects programs that call select() from large descriptors; those that never
/// open so many do not notice.
Descriptors descriptors(size_t wanted);

/// Owns a file descriptor. A child that is forked from this process has it closed, and finds -1 here. O_CLOEXEC works
/// where a child starts a program; one that does not would keep locks and sockets of a process that was killed, which
/// would so look alive to its peers. Children made by the bare system call, past the C library, keep it.
class OwnDescriptor {
  public:
    OwnDescriptor();
    OwnDescriptor(const OwnDescriptor &) = delete;
    OwnDescriptor &operator=(const OwnDescriptor &) = delete;
    ~OwnDescriptor();

    /// Takes what `open` returns, -1 included, and closes what it had. No fork comes between opening and owning.
    void take(const std::function<int()> &open);
    void close() {
        take([] { return -1; });
    }
    /// -1: none. Not while another thread calls take().
    [[nodiscard]] int get() const { return fd_; }

  private:
    friend struct OwnDescriptors;
    void close_now();
    int fd_ = -1;
    uint64_t file_ = 0;  ///< what it is open for: a program that closes all that is open may use the number itself
    OwnDescriptor *next_ = nullptr;
    OwnDescriptor *previous_ = nullptr;
};

}  // namespace flx

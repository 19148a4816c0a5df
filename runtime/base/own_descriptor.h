/// \file own_descriptor.h
/// Descriptors that belong to this process alone: children that the program forks do not keep them.
#pragma once

#include <functional>

namespace flx {

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
    int fd_ = -1;
    OwnDescriptor *next_ = nullptr;
    OwnDescriptor *previous_ = nullptr;
};

}  // namespace flx

/// \file paths.h
/// Datagrams beside the links: whether a rail's way to a peer still carries anything, and short words between the rails
/// of two processes, also while the program computes. Implemented by the liveness responder; rails know only this.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace flx {

/// An address of a host, as IPv6 writes it: IPv4 as ::ffff:a.b.c.d. All zeros: none.
using HostAddress = std::array<uint8_t, 16>;

/// What questions over one path have brought.
struct PathReport {
    uint64_t answers = 0;
    int64_t silent_ns = 0;    ///< since the first unanswered question; a gap between questions adds 50 ms at most, so
                              ///< that a process which did not run, and so did not listen, hears no silence in it
    uint32_t unanswered = 0;  ///< questions since the last answer
    int64_t answered_ns = 0;  ///< CLOCK_MONOTONIC of the last answer; 0: none
};

/// Thread-safe. Nothing blocks; any datagram may get lost.
class Paths {
  public:
    static constexpr size_t kWordBytes = 512;

    Paths() = default;
    Paths(const Paths &) = delete;
    Paths &operator=(const Paths &) = delete;
    virtual ~Paths() = default;

    /// Whether the process is a known peer: others have no business here.
    [[nodiscard]] virtual bool knows(uint64_t /*uid*/) const { return true; }

    /// The path to the process `uid`, a known peer, that leaves by network device `device` from its address `local` to
    /// the peer's address `remote`. Paths are kept for the process's life. -1: one of the two does not listen there.
    virtual int add_path(uint64_t uid, const std::string &device, const HostAddress &local,
                         const HostAddress &remote) = 0;
    /// Asks over this path alone; the peer's responder answers over it.
    virtual void ask_path(int path) = 0;
    [[nodiscard]] virtual PathReport path_report(int path) const = 0;

    /// Asks the process at all its addresses.
    virtual void ask_process(uint64_t uid) = 0;
    /// CLOCK_MONOTONIC when the latest question was asked that the process has answered by datagram, over any address;
    /// 0: none. Before it answered, it answered what had come to it over paths, and this process has read what had come
    /// here before. What comes otherwise says nothing of paths: where datagrams do not come through, none is silent for
    /// being lost.
    [[nodiscard]] virtual int64_t process_answered_ns(uint64_t uid) const = 0;
    /// Another process that reaches it heard it lately: it is not silent.
    virtual void vouch(uint64_t uid) = 0;
    /// How long ago the first question was that neither the process nor any that vouches for it has answered; 0: there
    /// is none.
    [[nodiscard]] virtual int64_t process_silent_ns(uint64_t uid) const = 0;
    /// Whether the process is known to be gone: its port is closed.
    [[nodiscard]] virtual bool process_gone(uint64_t uid) const = 0;

    /// Sends a word of at most kWordBytes to the process: over `path`, or with -1 to all its addresses.
    virtual void tell(uint64_t uid, int path, const void *word, size_t bytes) = 0;
    /// Takes the oldest word that came.
    virtual bool hear(uint64_t &uid, std::string &word) = 0;
    /// Whether hear() would find one; an atomic load.
    [[nodiscard]] virtual bool has_words() const = 0;
    /// `wake` is called, from another thread, when a word comes. It must not call back.
    virtual void on_word(std::function<void()> wake) = 0;
};

}  // namespace flx

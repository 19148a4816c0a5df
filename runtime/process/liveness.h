/// \file liveness.h
/// Whether a process runs: the word of a responder thread in it, never a guess from its silence on a link.
///
/// Each process has one thread that sleeps and answers questions, so an idle job sends nothing and a program that
/// computes for an hour without calling FLX still answers. A process that was stopped or killed does not. Questions are
/// datagrams; where these do not come through, a TCP connection to the peer's responder carries them. All are sealed
/// with keys that each two processes have for themselves (liveness_seal.h), so neither strangers nor a process that got
/// a dead one's port or pid can speak for it, and what a stranger sends leaves nothing behind.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/status.h"
#include "runtime/link/paths.h"

namespace flx {

/// What a peer last said of itself.
struct PeerReport {
    uint64_t answers = 0;   ///< that came since add_peer
    int64_t silent_ns = 0;  ///< since the first unanswered question; 0: none. A gap between questions adds 1 s at
                            ///< most, so that neither hours without asking nor being stopped oneself count
    bool refused = false;   ///< its port is closed and it has not answered since: the process is gone
};

/// How a peer has answered so far.
enum class Asked : uint8_t { unanswered, by_datagram, by_stream };

class Liveness : public Paths {
  public:
    /// Listens on the loopback interface, which is all that ranks of one host need, and starts the thread.
    static Status start(uint64_t uid, std::unique_ptr<Liveness> &result);

    /// Listens at the addresses of this host's interfaces that are up, too, for peers on other hosts; called before
    /// they get address(). A further call listens at addresses that are new.
    virtual void open_network() = 0;
    /// The addresses and ports at which this process listens, and its public key, as text for peers.
    [[nodiscard]] virtual std::string address() const = 0;
    /// A peer by its uid. Addresses that cannot be reached are harmless; all of them are asked, except those that mean
    /// this host here (loopback of another host, a bridge's address that both have); loopback alone where both share
    /// it. A uid that is known stays as it is. FLX_ERR_ARGUMENT: not an address; FLX_ERR_SYSTEM: none that could be
    /// asked.
    virtual Status add_peer(uint64_t uid, const std::string &address) = 0;

    /// Sends a question about communicator `comm` (0: none), and about its call `number`, to the peer's addresses.
    /// Never blocks. Rate-limited to one in 50 ms per peer, so that waiting loops may call it at will. Thread-safe.
    virtual void ask(uint64_t uid, uint32_t comm, uint64_t number) = 0;
    void ask(uint64_t uid, uint32_t comm) { ask(uid, comm, 0); }
    [[nodiscard]] virtual PeerReport report(uint64_t uid) const = 0;
    /// How the peer has answered: by datagram, if it ever did so.
    [[nodiscard]] virtual Asked asked(uint64_t uid) const = 0;

    /// What is said of a communicator when a peer asks about its call `number`: written to `said`, of which there are
    /// kSaidBytes; returns how many. In the responder's thread, so it must not wait for one that may be in a call.
    using Say = std::function<size_t(uint64_t number, std::span<std::byte> said)>;
    static constexpr size_t kSaidBytes = 512;
    /// Sets what is said in answers about `comm` from now on. Null: nothing more is, and `say` does not run any more on
    /// return.
    virtual void say_of(uint32_t comm, Say say) = 0;
    struct Said {
        std::string bytes;   ///< empty: nothing yet
        uint64_t times = 0;  ///< how often the peer has said something
    };
    /// What the peer said last of `comm`, of which this process has something to say, too.
    [[nodiscard]] virtual Said said(uint64_t uid, uint32_t comm) const = 0;

    /// `f` runs in the responder's thread after nudge(), and must not take long. Null: not any more, on return. nudge()
    /// may be called in a signal's handler.
    virtual void on_nudge(std::function<void()> f) = 0;
    virtual void nudge() = 0;

    /// This process declares a communicator broken: answers about it say so from now on, for as long as the process
    /// runs, and `peers` (uids) are told at once. The first call about a communicator counts.
    virtual void declare_broken(uint32_t comm, const Status &why, std::span<const uint64_t> peers) = 0;
    /// Whether a peer said, asked or not, that `comm` is broken; `why` gets its code and sentence.
    virtual bool told_broken(uint32_t comm, Status &why) const = 0;
};

}  // namespace flx

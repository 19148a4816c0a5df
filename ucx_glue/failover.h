/// \file failover.h
/// What happens when a rail to a process stops. Four parts:
///
/// *Detection* (failover.cpp). A line on which something is unacknowledged and nothing comes is asked over its own path
/// (runtime/link/paths.h). It is lost when UCX says so; when its path stays silent though the process answers elsewhere
/// well into the silence; or when the path answers but what was sent does not arrive at a process that does look. A
/// process that merely computes is none of these, nor is one that was stopped: it answers nowhere.
///
/// *Re-sending* (failover.cpp). Chunks that a lost connection took and that were not acknowledged leave it once UCX
/// has let go of their memory, and go to the same process over other lines; those above see a late Completion. The
/// receiver knows duplicates by what they are (ChunkHeader), also after the operation ended (Link::ended).
///
/// *Relaying* (relay.cpp). While no line to a process is left, another process may carry the chunks.
///
/// *Mending* (rebuild.cpp). The process with the lower uid proposes new connections until one proves itself.
///
/// All of it runs with the gate held. It allocates only when something was lost.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/link/link.h"
#include "ucx_glue/rails.h"
#include "ucx_glue/relay.h"

namespace flx::ucx {

class Line;
class RailLink;
class Reach;
struct Outgoing;
struct Peer;
struct Target;
struct Word;

/// A chunk that lost its connection.
struct Resend {
    RailLink *home = nullptr;  ///< where its completion is collected; null: gone, or nobody waits
    int rank = -1;
    ChunkHeader header{};
    const void *source = nullptr;       ///< the caller's memory,
    std::unique_ptr<std::byte[]> copy;  ///< or the rail's own
    Target *lost = nullptr;             ///< whose connection it was; null: none had it
};

class Failover {
  public:
    Failover(uint64_t uid, const RailOptions &options);
    ~Failover();
    Failover(const Failover &) = delete;
    Failover &operator=(const Failover &) = delete;

    void add(Line &line);
    void add(Target &target);
    /// Sets the name that users know the process by.
    void name(int process, std::string text);

    /// Called by UCX's callbacks; the next turn() looks at the peer.
    void failed(Peer &peer) { failed_.push_back(&peer); }
    /// Called after each progress of a line. Takes a few nanoseconds where all is well.
    void turn() {
        if (!failed_.empty())
            bury();
        if (waiting_ != 0)
            pump();
        if (!proven_.empty())
            prove_all();
        relay_.turn();
        if (paths_ != nullptr && ((++turns_ % kTurnsPerLook == 0 && due()) || paths_->has_words()))
            look();
    }
    /// The same from the guard thread, which comes seldom.
    void guard_turn();

    /// Whether chunks of the communicator wait to be sent again to this process: new ones must not overtake them for
    /// ever.
    [[nodiscard]] bool blocked(uint32_t comm, int process) const {
        return waiting_ != 0 && waiting(comm, process) != 0;
    }
    /// `link` was made: what came for it before, over whatever line.
    void adopt(RailLink &link);
    /// `link` goes: what it holds in the caller's memory must not be sent any more.
    void forget(RailLink &link);
    /// Whether chunks of the communicator for this process, to which it has lost a line, get there by another process.
    [[nodiscard]] bool relays(uint32_t comm, int process);
    /// Success while anything of the communicator's reaches the process, or may soon: until nothing has for
    /// `deadline_ns`.
    [[nodiscard]] Status error(uint32_t comm, const Target &target, int rank, int64_t deadline_ns);
    /// Whether something has to be moved although nobody calls: a line is lost, chunks wait.
    [[nodiscard]] bool restless() const {
        return troubled_ != 0 || waiting_ != 0 || !failed_.empty() || relay_.restless();
    }
    [[nodiscard]] Relay &relay() { return relay_; }
    [[nodiscard]] const Relay &relay() const { return relay_; }
    [[nodiscard]] Reach &reach() { return *reach_; }
    [[nodiscard]] const Reach &reach() const { return *reach_; }
    [[nodiscard]] const FailoverCounters &counters() const { return counters_; }
    /// Ends all mending, since the process ends, and lets the peers know.
    void close();

    // Messages of the rails' own (rail_receive.cpp).
    void echoed(Peer &peer, uint32_t bytes);
    void told_up(Peer &peer);

  private:
    friend class Relay;
    static constexpr uint32_t kTurnsPerLook = 4;
    struct Partner {
        std::vector<Target *> targets;
        std::deque<Resend> queue;
        std::string name;
    };

    // failover.cpp
    Partner &partner(int process) { return partners_[static_cast<size_t>(process)]; }
    [[nodiscard]] const Partner &partner(int process) const { return partners_[static_cast<size_t>(process)]; }
    [[nodiscard]] size_t waiting(uint32_t comm, int process) const;
    void bury();
    void surrender(Peer &peer);
    void pump();
    bool resend(int process, Resend &resend);
    [[nodiscard]] bool due() const;
    void look();
    void tick(int64_t now);
    [[nodiscard]] bool answers_elsewhere(Target &target, const PathReport &report, int64_t now) const;
    void watch(Target &target, int64_t now);
    void lose(Target &target, std::string why, int64_t now);
    void report_loss(Target &target);
    // rebuild.cpp
    void mend(Target &target, int64_t now);
    void offer(Target &target, int64_t now);
    void prove(Target &target);
    void prove_all();
    void back(Target &target);
    void give_up(Target &target, int64_t now);
    void tell(const Target &target, uint32_t kind, uint32_t value, const std::string &address, bool everywhere);
    void heed(uint64_t uid, const std::string &text);
    void heed_offer(Target &target, const Word &word, const std::string &address);
    [[nodiscard]] bool leads(const Target &target) const;

    const uint64_t uid_;
    const int64_t timeout_ns_;
    Paths *const paths_;
    const std::unique_ptr<Reach> reach_;
    Relay relay_;
    std::vector<Line *> lines_;
    std::deque<Partner> partners_;
    std::vector<Peer *> failed_;
    std::vector<Target *> proven_;  // an echo came back
    std::vector<Peer *> dying_;     // UCX had not let go of all their chunks
    size_t waiting_ = 0;            // chunks to be sent again
    size_t troubled_ = 0;           // targets that are not up, and should be
    uint32_t turns_ = 0;
    int64_t ticked_ns_ = 0;
    int64_t swept_ns_ = 0;
    bool closing_ = false;
    FailoverCounters counters_;
};

}  // namespace flx::ucx

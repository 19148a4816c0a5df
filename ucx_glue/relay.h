/// \file relay.h
/// Chunks through a third process, while every line that their communicator may use to their receiver is lost and
/// another process reaches both.
///
/// *Who reaches whom* is asked by words (Paths::tell), ten times a second while it matters, for each communicator that
/// wants to know: a relaying process that is of the communicator sends on over its lines only (reach.h), any other over
/// whatever it has. The answer also vouches for the process that was asked about, so that one which only others reach
/// is not taken for dead; and it grants a window: what the relaying process keeps in memory for others is at most
/// RailOptions::relay_bytes.
///
/// *End to end.* The relaying process knows nothing of a chunk but where it goes, and may lose it. The origin keeps the
/// chunk until the receiver's FLX has acknowledged it by the same way, sends it again under the same number where
/// nothing comes for long, and gives it back to Failover where no relay is left. A receiver takes each number once;
/// what had also gone over a line before it knows by ChunkHeader.
///
/// All of it runs with the gate held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/link/link.h"
#include "ucx_glue/wire.h"

namespace flx::ucx {

class Failover;
class RailLink;
struct RailOptions;
struct Resend;
struct Target;

class Relay {
  public:
    Relay(Failover &failover, uint64_t uid, const RailOptions &options);
    ~Relay();
    Relay(const Relay &) = delete;
    Relay &operator=(const Relay &) = delete;

    /// Whether chunks of the communicator for this process go through another one now. To ask is to want it: as long as
    /// a caller asks, a process that can is looked for.
    [[nodiscard]] bool carries(uint32_t comm, int process);
    /// The process that they go through, where carries().
    [[nodiscard]] int via(uint32_t comm, int process) const;
    /// CLOCK_MONOTONIC until when it did; 0: never.
    [[nodiscard]] int64_t carried_ns(uint32_t comm, int process) const;
    /// Whether the search for a process began only a moment ago, so that answers may be under way.
    [[nodiscard]] bool seeks(uint32_t comm, int process) const;
    /// When others last heard the process, by what they said of one that was silent here; 0: they said nothing.
    [[nodiscard]] int64_t heard_by_others_ns(int process) const;
    /// Sends as Link::send does. The chunk counts for `link` as one that went astray.
    SendResult send(int process, RailLink &link, int rank, const ChunkHeader &header, const void *data);
    /// A chunk that a line lost. True if taken.
    bool resend(int process, Resend &resend);
    void forget(RailLink &link);

    // Called by the rails' message handlers.
    void forward(const RelayWire &wire, const void *data, size_t bytes);
    void acknowledged(const RelayWire &wire, const void *numbers, size_t bytes);
    /// Whether a chunk is to be taken: not so if it was.
    bool take(const RelayWire &wire);
    /// There was no memory for it: it is to be taken when it comes again.
    void leave(const RelayWire &wire);
    [[nodiscard]] int process_of(uint64_t uid) const;
    /// Owes the origin an acknowledgement: the executor has released the chunk.
    void owe(uint64_t uid, uint32_t comm, uint32_t number);
    /// Acknowledges a chunk of a communicator that is closed here: it will not be taken, and its origin need not send
    /// it again.
    void refuse(const RelayWire &wire);
    /// UCX has let go of so many bytes that were forwarded.
    void let_go(size_t bytes) { kept_bytes_ -= bytes; }

    void turn() {
        if (stirred_)
            act();
    }
    void tick(int64_t now);
    /// Takes a word of another process, about the process `about`.
    void heed(uint64_t uid, const ucx::Word &word, uint64_t about);
    /// Something has to be moved although nobody calls; and soon.
    [[nodiscard]] bool restless() const { return active_; }
    [[nodiscard]] bool hurried() const;
    /// Whether nothing that a peer may wait for is here.
    [[nodiscard]] bool flushed() const { return !stirred_; }

  private:
    /// What another process said of the one that a Detour leads to.
    struct Word {
        int process = -1;
        int64_t said_ns = 0;
        size_t grant = 0;
        int64_t avoid_until_ns = 0;
    };
    /// The detour of one communicator's chunks to one process.
    struct Detour {
        std::vector<Word> words;
        int via = -1;
        bool carries = false;
        int64_t carried_ns = 0;
        int64_t began_ns = 0;   // looking for one
        int64_t wanted_ns = 0;  // when somebody asked last
        int64_t asked_ns = 0;
        size_t chunks = 0;  // under way
        size_t bytes = 0;
        int64_t moved_ns = 0;
        int64_t patience_ns = 0;
    };
    /// What a communicator's chunks from one process are answered with.
    struct Answer {
        int back = -1;  // what came last came through this process
        std::vector<uint32_t> owed;
    };
    /// What goes to one process through others, and comes from it.
    struct Way {
        std::map<uint32_t, Detour> detours;  // by communicator
        int64_t asked_ns = 0;
        int64_t heard_ns = 0;                  ///< by others
        std::map<uint32_t, Resend> under_way;  // by number
        uint32_t next_number = 1;
        std::map<uint32_t, Answer> answers;  // by communicator
        std::map<uint32_t, bool> taken;      // numbers; true: released
        uint32_t base = 0;                   // all below are done at the origin
    };
    struct Forward {
        RelayWire wire;
        std::vector<std::byte> payload;
    };

    Way &way(int process);
    [[nodiscard]] const Detour *find(uint32_t comm, int process) const;
    [[nodiscard]] static bool has_room(const Detour &detour, size_t bytes);
    void start(int process, Resend &&resend);
    void transmit(int process, uint32_t number, const Resend &resend);
    bool post(int via, RelayWire wire, std::vector<std::byte> &payload, size_t counted);
    [[nodiscard]] bool has_line(uint32_t comm, int process) const;
    [[nodiscard]] Target *live(uint32_t comm, int process, int64_t now) const;
    void ask_lines(int process) const;
    [[nodiscard]] size_t room_for_chunks() const { return most_bytes_ - most_bytes_ / 8; }
    [[nodiscard]] size_t grant_to(uint64_t from, uint64_t to, uint32_t comm, int64_t now);
    void act();
    void tick(int process, int64_t now);
    void tick(uint32_t comm, int process, Detour &detour, int64_t now);
    void say(int process, const Detour &detour, int before, bool direct) const;
    void choose(uint32_t comm, Detour &detour, int64_t now) const;
    void ask(uint32_t comm, int process, int64_t &asked_ns, int64_t now);
    void give_back(uint32_t comm, int process, Detour &detour);
    void tell(int process, ucx::Word word, uint64_t about) const;

    Failover &failover_;
    const uint64_t uid_;
    const size_t window_;
    const size_t most_bytes_;  // kept for others; 0: none are relayed
    const int64_t timeout_ns_;
    std::deque<Way> ways_;  // by process
    std::deque<Forward> forwards_;
    std::map<std::tuple<uint64_t, uint64_t, uint32_t>, int64_t> granted_;  // when last
    size_t kept_bytes_ = 0;                                                // for others
    bool stirred_ = false;
    size_t turn_ = 0;  // of those that are asked
    bool active_ = false;
    int64_t active_until_ns_ = 0;
    int64_t moved_ns_ = 0;
};

}  // namespace flx::ucx

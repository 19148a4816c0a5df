/// \file routes.h
/// The routes of a communicator: towards each host, as one rank sees them, which links carry to it and in what shares.
/// A route has a controller, which learns from what links carried in operations. Between hosts a rank may have a rail
/// of its own and borrow the others' while they are idle (lending.h). One thread at a time, but for what is made before
/// the communicator is used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/config.h"
#include "runtime/link/bootstrap.h"
#include "runtime/link/layout.h"
#include "runtime/link/lending.h"
#include "runtime/link/slot.h"
#include "runtime/shares/bursts.h"
#include "runtime/shares/controller.h"
#include "runtime/shares/router.h"
#include "runtime/shares/slow_links.h"

namespace flx {

/// What an operation says of itself when it has ended, for the controllers.
struct Ended {
    uint64_t sequence = 0;
    int64_t elapsed_ns = 0;
    int phases = 1;
    bool lent = false;  ///< by ranks that have not alike much to send
};

class Routes final : public Router {
  public:
    /// Both outlive it. `layout` is agreed, and links are there, before anything else is called.
    Routes(const Layout &layout, LinkSlots &links) : layout_(layout), links_(links) {}

    // Making, in this order. Collective where a bootstrap is asked for.
    /// `mine`: a mask of the links that this rank has. Afterwards reaches() is known.
    Status exchange_links(Bootstrap &bootstrap);
    /// Whether `link` carries between this rank and `peer`: both have it.
    [[nodiscard]] bool reaches(size_t link, int peer) const;
    /// Whether `peer` has `link`.
    [[nodiscard]] bool has(int peer, size_t link) const { return (have_[static_cast<size_t>(peer)] >> link & 1) != 0; }
    /// FLX_LEND and FLX_OWN_RAIL: which rail is this rank's own. `ledger`: Lending::bytes of memory that the ranks of
    /// this host share; null: rails are not lent.
    Status choose_own_rail(const Config &config, std::byte *ledger);
    Status exchange_owners(Bootstrap &bootstrap);
    /// `forced`: shares from FLX_PARTITION; no links: none are forced.
    Status make(const Config &config, const PartitionVector &forced);
    /// Before make(): what the ranks of this host tell each other of rails, by host and link, and by link; both outlive
    /// this. Null: this rank learns alone.
    void share_records(RailRecord *records, RailLoad *loads) {
        records_ = records;
        loads_ = loads;
    }
    /// Each rank learns over which links the others may send to it, as their choice need not be its own: shares may be
    /// forced on one rank, or one rank of a host may lack a rail.
    Status exchange(Bootstrap &bootstrap);
    /// Links over which this rank may send to `peer`, or receive from it, also once others are lost, as a mask.
    [[nodiscard]] uint32_t may_use(int peer) const;

    // Router.
    const PartitionVector &vector(int peer, size_t bytes, int phase) override;
    [[nodiscard]] uint32_t incoming_links(int peer) const override { return incoming_[static_cast<size_t>(peer)]; }
    [[nodiscard]] uint32_t outgoing_links(int peer) const override { return route(peer).links; }
    [[nodiscard]] uint32_t takers(int peer, size_t bytes) const override;
    [[nodiscard]] double rate(int link, int peer) const override { return route(peer).controller->rate(link); }
    [[nodiscard]] bool may_move_cells() const override { return !forced_; }
    void lost(int link, int peer) override { set_lost(link, peer, true); }

    // Around operations.
    /// An operation with `peers` begins: looks which links to them were lost since the last one, or carry again.
    void begin(const std::vector<int> &peers);
    /// What an exchange sends to other hosts.
    struct Outward {
        size_t longest = 0;  ///< bytes of a message
        uint64_t bytes = 0;
        bool even = true;  ///< all messages are as long
    };
    /// Shorter messages of an exchange go whole, over one rail after the other.
    static constexpr size_t kLeastCut = size_t{24} << 10;
    /// An exchange begins. Until exchange_opened() its messages begin on the own rail, and ranks lend each other
    /// theirs, which this returns. But where ranks have `alike` much to send, as in schedules, the shares that were
    /// learnt serve it, unless messages are too short to be cut.
    bool open_exchange(const Outward &outward, bool alike);
    void exchange_opened() { opens_exchange_ = false; }
    /// No exchange is under way any more: no rail is lent or borrowed.
    void end_exchanges();
    [[nodiscard]] bool lends() const { return lending_ != nullptr; }
    /// Whether there is anything to learn: several links to one host.
    [[nodiscard]] bool learns() const { return learns_; }
    /// Tells each route's controller what its links carried since it was told last. `bytes_to(peers)`: the longest
    /// block, or message to one of the peers.
    template <typename BytesTo>
    void learn(const Ended &ended, BytesTo &&bytes_to) {
        take_samples();
        // Soon after the probe, and now and then.
        if (ended.sequence <= 64 || ended.sequence % 64 == 0)
            show_latencies();
        for (const int host : sampled_)
            if (Route &route = routes_[static_cast<size_t>(host)]; route_learns(route, ended))
                observe(route, ended, bytes_to(route.peers));
    }
    /// What links carried until now is no operation's: a first sample that held the probe's pings and pauses would make
    /// a link look a hundred times slower than it is.
    void forget() { take_samples(); }
    /// Rails will not be used any more.
    void drop_lent() { lent_.clear(); }

    // For reports.
    /// What the controllers decided, of routes that several links serve, and what came of rails that are lent.
    [[nodiscard]] std::vector<Decision> explain() const;
    /// Part of `link` in the vector that the last operation used towards its last peer.
    [[nodiscard]] double last_share(int link) const { return link < last_vector_.links ? last_vector_.share(link) : 0; }
    /// The first rank that `link` does not reach just now; -1: none.
    [[nodiscard]] int lost_to(int link) const;
    /// What `link` delivers to the host to which it is slowest, as its controller believes now, in bytes/ns; 0:
    /// unknown.
    [[nodiscard]] double slowest_rate(int link) const;
    /// Whether any vector was asked for.
    [[nodiscard]] bool used() const { return last_vector_.links != 0; }
    /// Empty where no rail is this rank's own.
    [[nodiscard]] std::string own_rail_report() const;

  private:
    struct Told {
        PartitionVector vector;
        std::array<double, kMaxLinks> rate{};  ///< bytes/ns
    };
    struct Pooled {
        uint64_t bytes = 0;
        uint64_t busy_ns = 0;
        uint64_t samples = 0;
    };
    /// To one host.
    struct Route {
        std::unique_ptr<Controller> controller;
        std::vector<int> peers;
        uint32_t links = 0;                           ///< mask of those that may carry something
        std::array<Pooled, kMaxLinks> pooled{};       ///< totals of all ranks of this host that were learned from
        std::array<LinkSample, kMaxLinks> samples{};  ///< of what came when samples were last taken, by link
        bool sampled = false;                         ///< something came then
        std::array<double, kMaxLinks> trip_ns{};      ///< while latencies are shown: the least round trip, by link
        std::vector<Told> told;                       ///< by size class: what a user was last told
        SlowLinks slow;                               ///< of which a user is told once that is sure
        int whole = -1;       ///< the rail that took messages of this operation whole; -1: none did
        bool shared = false;  ///< others went over several, or whole over another
    };

    [[nodiscard]] const Route &route(int peer) const { return routes_[static_cast<size_t>(layout_.host_of(peer))]; }
    [[nodiscard]] Route &route(int peer) { return routes_[static_cast<size_t>(layout_.host_of(peer))]; }
    Status make_route(int host, const Config &config, const PartitionVector &forced);
    [[nodiscard]] Status no_common_link(int host) const;
    Status force(Route &route, const Config &config, const PartitionVector &forced, uint32_t usable);
    void take_verdicts(int host, uint32_t usable);
    void estimate(int host, uint32_t usable, uint32_t left_to_memory, bool frozen);
    void start_bursts();
    void lend(const Config &config);
    [[nodiscard]] bool begins_on_own_rail(int peer, size_t bytes) const;
    void take_samples();
    void read_counters(size_t index);
    void read_counters(size_t index, int peer);
    void pool_samples();
    void show_latencies();
    [[nodiscard]] bool route_learns(Route &route, const Ended &ended);
    void observe(Route &route, const Ended &ended, size_t bytes);
    [[nodiscard]] bool tells() const;
    void report_change(Route &route, size_t bytes);
    void report_slow(Route &route, size_t bytes);
    void set_lost(int link, int peer, bool lost);

    const Layout &layout_;
    LinkSlots &links_;
    std::vector<uint32_t> have_;                           ///< by rank: links that it has, as a mask
    std::vector<Route> routes_;                            ///< by host
    std::vector<uint32_t> outgoing_;                       ///< by host: may_use() of what is sent
    std::vector<uint32_t> incoming_;                       ///< by peer: links that it may send over, as a mask
    std::vector<uint32_t> lost_;                           ///< by peer: links that do not carry to it now, as a mask
    std::array<LinkCounters, kMaxLinks> timed_{};          ///< totals to all routes that were learned from
    std::array<std::vector<LinkSample>, kMaxLinks> seen_;  ///< likewise by link and peer; empty: no route has the link
    std::vector<int> counted_;                             ///< peers of which a link has counted something
    std::vector<int> sampled_;                             ///< hosts with Route::sampled, in order
    std::vector<int> unshown_;      ///< peers whose latencies may be others since they were shown, each once
    std::vector<bool> is_unshown_;  ///< by peer
    PartitionVector last_vector_;
    bool learns_ = false;
    bool forced_ = false;  ///< FLX_PARTITION

    RailRecord *records_ = nullptr;
    RailLoad *loads_ = nullptr;
    Bursts bursts_;
    std::array<PartitionVector, kMaxLinks> whole_;  ///< by link: all on it

    // Lending.
    std::byte *ledger_ = nullptr;
    int own_rail_ = -1;                 ///< the link that is this rank's own; -1 where rails are not owned
    std::vector<uint32_t> owned_;       ///< by rank: links that it owns, as a mask
    std::unique_ptr<Lending> lending_;  ///< null where rails are not lent
    std::vector<LentLink *> lent_;
    bool opens_exchange_ = false;  ///< an exchange is being started
};

}  // namespace flx

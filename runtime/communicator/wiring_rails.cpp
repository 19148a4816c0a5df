/// How a communicator gets its rails: ranks plan them, tell each other where they can be reached, and connect.
#include <sched.h>

#include <algorithm>
#include <bit>
#include <map>

#include "probe/network.h"
#include "runtime/base/clock.h"
#include "runtime/base/descriptors.h"
#include "runtime/base/log.h"
#include "runtime/base/packed.h"
#include "runtime/communicator/communicator.h"
#include "runtime/communicator/wiring_routes.h"
#include "ucx_glue/rail_wiring.h"

namespace flx {

using nlohmann::json;

namespace {

/// Communicators of up to so many ranks make all connections at once; in larger ones few of them are ever used.
constexpr int kConnectedAtOnce = 64;

/// Rails for whose connections a rank has no descriptors are left off on all, before a connection fails that a peer
/// waits for: in `left_off`, with the reason. `said`: by rank, what it has and may open; `names`: of the rails, by
/// identity.
template <typename Describe>
void leave_costly_rails(const std::vector<json> &said, Describe &&describe, std::map<std::string, std::string> &names,
                        std::vector<std::pair<std::string, std::string>> &left_off) {
    for (size_t rank = 0; rank < said.size(); ++rank) {
        const json &rails = said[rank]["rails"];
        const auto spare = said[rank]["spare"].get<size_t>();
        const auto needs = [&](const auto &name) {
            const auto rail = rails.find(name.first);
            return rail == rails.end() ? size_t{0} : rail->at("connections").template get<size_t>();
        };
        size_t needed = 0;
        for (const auto &name : names)
            needed += needs(name);
        const size_t all = needed;
        while (needed > spare) {
            const auto last =
                std::find_if(names.rbegin(), names.rend(), [&](const auto &name) { return needs(name) != 0; });
            left_off.emplace_back(
                last->second,
                fmt::format(
                    "too few descriptors: over all rails, {} may make {} connections to its peers; {} are open and "
                    "{} kept back of {} at a time (raise `ulimit -Hn`, or name fewer rails in FLX_RAILS)",
                    describe(static_cast<int>(rank)), all, said[rank]["open"].get<size_t>(), Descriptors::kReserve,
                    said[rank]["allowed"].get<size_t>()));
            needed -= needs(*last);
            names.erase(std::next(last).base());
        }
    }
}

}  // namespace

/// What ranks find out about rails while they get them.
struct Communicator::RailMaking {
    std::vector<int> host_of_rank;
    probe::RailPlan plan;
    std::map<std::string, int> opened;         ///< this rank's rails, by identity
    json own = json::object();                 ///< what it says of them, by identity
    size_t wanted = 0;                         ///< connections that they take
    std::vector<json> offered;                 ///< by rank, its rails by identity
    std::map<std::string, std::string> names;  ///< by identity, as the lowest rank that has it calls it
};

Status Communicator::make_rails() {
    if (layout_.size == 1)
        return {};
    RailMaking making;
    FLX_TRY(plan_rails(making));
    if (!making.plan.rails.empty())
        rails_ = process_->open_rails(making.plan);
    FLX_TRY(exchange_rails(making));
    for (const auto &[identity, name] : making.names) {
        if (links_.size() == kMaxLinks) {
            made_.left_off.emplace_back(name, fmt::format("a communicator has at most {} links", kMaxLinks));
            continue;
        }
        FLX_TRY(add_rail(making, identity, name));
    }
    if (rails_ != nullptr)
        for (const auto &problem : rails_->problems())
            made_.left_off.push_back(problem);
    made_.device_texts.clear();
    return {};
}

/// Which of this host's devices reach which hosts.
Status Communicator::plan_rails(RailMaking &making) {
    std::vector<probe::LooseEnd> loose;
    const auto plan = [&]() -> Status {
        std::vector<probe::HostDevices> by_rank(layout_.size);
        for (int rank = 0; rank < layout_.size; ++rank)
            FLX_TRY(probe::parse_host_devices(made_.device_texts[rank], by_rank[rank]));
        std::vector<probe::HostDevices> hosts;
        probe::group_hosts(by_rank, hosts, making.host_of_rank);
        const int own = making.host_of_rank[layout_.rank];
        const std::string &selection = knobs_.all.text("FLX_RAILS");
        if (selection == "none")
            return {};
        loose = probe::loose_ends(hosts, own, selection == "auto" ? "" : selection);
        return probe::plan_rails(hosts, own, selection == "auto" ? "" : selection, kMaxLinks - 1, making.plan);
    };
    FLX_TRY(join_networks(*bootstrap_, plan(), making.host_of_rank, loose, kMaxLinks - 1, making.plan));
    made_.left_off = making.plan.left_off;
    return {};
}

/// Who has which rail, and where it can be reached. Those for which some rank lacks descriptors are left off on all.
Status Communicator::exchange_rails(RailMaking &making) {
    const size_t known = rails_ != nullptr ? ucx::connections_to_make(*rails_) : 0;
    making.wanted = known;
    offer_rails(making);
    const Descriptors own = descriptors(making.wanted);
    const json said = {{"rails", making.own},
                       {"spare", own.spare() - std::min(own.spare(), known)},
                       {"open", own.open},
                       {"allowed", own.allowed}};
    std::vector<std::string> all;
    FLX_TRY(bootstrap_->allgather_text(pack(said), all));
    making.offered.resize(layout_.size);
    for (int rank = 0; rank < layout_.size; ++rank) {
        FLX_TRY(unpack(all[rank], rank, making.offered[rank]));
        for (const auto &[identity, rail] : making.offered[rank]["rails"].items())
            making.names.try_emplace(identity, rail["name"]);
    }
    const size_t before = made_.left_off.size();
    if (layout_.size <= kConnectedAtOnce)
        leave_costly_rails(
            making.offered, [&](int rank) { return layout_.describe(rank); }, making.names, made_.left_off);
    else if (making.wanted > own.spare())
        log().warn(
            "connections to all peers over all rails would take {} descriptors, and {} are left of {}: should "
            "connections fail, raise `ulimit -Hn`, or name fewer rails in FLX_RAILS",
            making.wanted, own.spare(), own.allowed);
    for (size_t i = before; i < made_.left_off.size() && layout_.rank == 0; ++i)
        log().warn("{} is not used: {}", made_.left_off[i].first, made_.left_off[i].second);
    for (json &theirs : making.offered) {
        json rails = std::move(theirs["rails"]);
        theirs = std::move(rails);
    }
    return {};
}

/// What this rank says of its rails, and how many more connections to its peers they take than the process has.
void Communicator::offer_rails(RailMaking &making) const {
    // Within a host rails carry nothing then, and are connected to two neighbours at most, to be measured.
    const bool by_memory =
        links_[0].link != nullptr && forced_shares().empty() && knobs_.all.text("FLX_LINKS") == "auto";
    for (int rail = 0; rails_ != nullptr && rail < rails_->count(); ++rail) {
        const std::vector<probe::RailCandidate> &planned = making.plan.rails;
        const auto candidate = std::find_if(planned.begin(), planned.end(), [&](const probe::RailCandidate &c) {
            const ucx::RailSpec &spec = rails_->spec(rail);
            return c.name == spec.name && c.device == spec.device && c.tls == spec.tls;
        });
        if (candidate == planned.end())
            continue;
        making.opened[candidate->identity] = rail;
        size_t connections = 0;
        for (int peer = 0; peer < layout_.size && candidate->tls == "tcp"; ++peer)
            if (peer != layout_.rank && candidate->reaches[making.host_of_rank[peer]] &&
                !(by_memory && layout_.members[peer].host == layout_.host) &&
                !ucx::knows(*rails_, rail, layout_.members[peer].process))
                connections += ucx::kConnections;
        making.wanted += connections;
        making.own[candidate->identity] = {
            {"name", candidate->name}, {"address", binary(rails_->address(rail))}, {"connections", connections}};
    }
}

/// One more link: the rail, towards the peers that it reaches, or where this rank does not have it its name alone.
Status Communicator::add_rail(const RailMaking &making, const std::string &identity, const std::string &name) {
    LinkSlot slot;
    slot.name = name;
    slot.identity = identity;
    if (const auto found = making.opened.find(identity); found != making.opened.end()) {
        const int rail = found->second;
        const auto candidate = std::find_if(making.plan.rails.begin(), making.plan.rails.end(),
                                            [&](const probe::RailCandidate &c) { return c.identity == identity; });
        slot.name = candidate->name;
        slot.is_tcp = candidate->tls == "tcp";
        std::vector<int> processes(layout_.size, -1);
        for (int peer = 0; peer < layout_.size; ++peer) {
            const Member &member = layout_.members[peer];
            const bool reached = peer != layout_.rank && making.offered[peer].contains(identity) &&
                                 candidate->reaches[making.host_of_rank[peer]];
            if (!reached)
                continue;
            FLX_TRY(
                rails_->connect(rail, member.process, member.uid, text_of(making.offered[peer][identity]["address"])));
            processes[peer] = member.process;
            rails_->name(member.process, layout_.most_per_host == 1
                                             ? member.hostname
                                             : fmt::format("{} (rank {})", member.hostname, peer));
        }
        slot.link = rails_->link(rail, id_, std::move(processes), knobs_.deadline_s);
    }
    links_.push_back(std::move(slot));
    return {};
}

/// Rails over which no rank sends need not be looked at by calls.
void Communicator::leave_idle_rails() {
    uint32_t used = 0;
    for (int peer = 0; peer < layout_.size; ++peer)
        if (peer != layout_.rank)
            used |= routes_.may_use(peer);
    for (size_t l = 0; l < links_.size(); ++l)
        if (links_[l].is_rail() && (used >> l & 1) != 0)
            return;
    rails_ = nullptr;
}

/// Makes the connections now: UCX 1.13 aborts the process if a peer dies while one is being made. A chunk of operation
/// 0, which no operation has, goes to each peer on each rail and is acknowledged. In large communicators, where a rank
/// talks to few of its peers, connections are made when they are first used.
Status Communicator::connect_rails() {
    constexpr int64_t kPatienceNs = 2'000'000'000;
    if (rails_ == nullptr || layout_.size > kConnectedAtOnce)
        return {};
    const uint8_t payload = 0;
    ChunkHeader header{};
    header.comm = id_;
    header.cells = 1;
    header.bytes = sizeof payload;
    struct Pair {
        Link *link;
        int peer;
        bool sent = false, received = false;
    };
    std::vector<Pair> open;
    for (int peer = 0; peer < layout_.size; ++peer) {
        for (uint32_t mask = peer != layout_.rank ? routes_.may_use(peer) : 0; mask != 0; mask &= mask - 1) {
            const int index = std::countr_zero(mask);
            Link *link = links_[index].link.get();
            if (routes_.reaches(index, peer) && link->kind() == LinkKind::rail && link->state(peer) == LinkState::up)
                open.push_back({link, peer});  // both ways, as acknowledgements go back
        }
    }
    const auto done = [](const Pair &pair) { return pair.sent && pair.received && pair.link->outstanding() == 0; };
    const int64_t end = now_ns() + kPatienceNs;
    // Whoever is done still owes its peers acknowledgements.
    for (; (!open.empty() || !rails_->flushed()) && now_ns() < end; std::erase_if(open, done)) {
        bool moved = rails_->progress();
        for (Pair &pair : open) {
            moved |= pair.link->progress();
            Arrival arrival;
            Completion completion;
            if (!pair.sent) {
                const SendResult result = pair.link->send(pair.peer, header, &payload);
                pair.sent = result != SendResult::busy;
            }
            if (!pair.received && pair.link->receive(pair.peer, arrival)) {
                pair.link->release(arrival);
                pair.received = true;
            }
            while (pair.link->completed(completion)) {
            }
        }
        if (!moved)
            sched_yield();
    }
    return {};  // and nobody goes on before all are agreed
}

}  // namespace flx

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

Status Communicator::make_rails() {
    if (layout_.size == 1)
        return {};
    std::vector<int> host_of_rank;
    probe::RailPlan plan;
    std::vector<probe::LooseEnd> loose;
    const auto plan_rails = [&]() -> Status {
        std::vector<probe::HostDevices> by_rank(layout_.size);
        for (int rank = 0; rank < layout_.size; ++rank)
            FLX_TRY(probe::parse_host_devices(made_.device_texts[rank], by_rank[rank]));
        std::vector<probe::HostDevices> hosts;
        probe::group_hosts(by_rank, hosts, host_of_rank);
        const std::string &selection = config_.text("FLX_RAILS");
        if (selection == "none")
            return {};
        loose = probe::loose_ends(hosts, host_of_rank[layout_.rank], selection == "auto" ? "" : selection);
        return probe::plan_rails(hosts, host_of_rank[layout_.rank], selection == "auto" ? "" : selection, kMaxLinks - 1,
                                 plan);
    };
    FLX_TRY(join_networks(*bootstrap_, plan_rails(), host_of_rank, loose, kMaxLinks - 1, plan));
    made_.left_off = plan.left_off;
    if (!plan.rails.empty())
        rails_ = process_->open_rails(plan);

    // Who has which rail, and where it can be reached.
    ucx::Rails *rails = rails_;
    std::map<std::string, int> rail_of_identity;
    json mine = json::object();
    size_t wanted = rails != nullptr ? ucx::connections_to_make(*rails) : 0;
    const size_t known = wanted;
    // Within a host rails carry nothing then, and are connected to two neighbours at most, to be measured.
    const bool by_memory = links_[0].link != nullptr && forced_shares().empty() && config_.text("FLX_LINKS") == "auto";
    for (int rail = 0; rails != nullptr && rail < rails->count(); ++rail) {
        const auto candidate = std::find_if(plan.rails.begin(), plan.rails.end(), [&](const probe::RailCandidate &c) {
            const ucx::RailSpec &spec = rails->spec(rail);
            return c.name == spec.name && c.device == spec.device && c.tls == spec.tls;
        });
        if (candidate == plan.rails.end())
            continue;
        rail_of_identity[candidate->identity] = rail;
        size_t connections = 0;
        for (int peer = 0; peer < layout_.size && candidate->tls == "tcp"; ++peer)
            if (peer != layout_.rank && candidate->reaches[host_of_rank[peer]] &&
                !(by_memory && layout_.members[peer].host == layout_.host) &&
                !ucx::knows(*rails, rail, layout_.members[peer].process))
                connections += ucx::kConnections;
        wanted += connections;
        mine[candidate->identity] = {
            {"name", candidate->name}, {"address", binary(rails->address(rail))}, {"connections", connections}};
    }
    const Descriptors own = descriptors(wanted);
    const json said = {{"rails", mine},
                       {"spare", own.spare() - std::min(own.spare(), known)},
                       {"open", own.open},
                       {"allowed", own.allowed}};
    std::vector<std::string> all;
    FLX_TRY(bootstrap_->allgather_text(pack(said), all));
    std::vector<json> addresses(layout_.size);
    std::map<std::string, std::string> names;  // by identity, as the lowest rank that has it calls it
    for (int rank = 0; rank < layout_.size; ++rank) {
        FLX_TRY(unpack(all[rank], rank, addresses[rank]));
        for (const auto &[identity, rail] : addresses[rank]["rails"].items())
            names.try_emplace(identity, rail["name"]);
    }
    const size_t before = made_.left_off.size();
    if (layout_.size <= kConnectedAtOnce)
        leave_costly_rails(
            addresses, [&](int rank) { return layout_.describe(rank); }, names, made_.left_off);
    else if (wanted > own.spare())
        log().warn(
            "connections to all peers over all rails would take {} descriptors, and {} are left of {}: should "
            "connections fail, raise `ulimit -Hn`, or name fewer rails in FLX_RAILS",
            wanted, own.spare(), own.allowed);
    for (size_t i = before; i < made_.left_off.size() && layout_.rank == 0; ++i)
        log().warn("{} is not used: {}", made_.left_off[i].first, made_.left_off[i].second);
    for (json &theirs : addresses) {
        json rails = std::move(theirs["rails"]);
        theirs = std::move(rails);
    }
    for (const auto &entry : names) {
        const std::string &identity = entry.first;
        const std::string &name = entry.second;
        if (links_.size() == kMaxLinks) {
            made_.left_off.emplace_back(name, fmt::format("a communicator has at most {} links", kMaxLinks));
            continue;
        }
        LinkSlot slot;
        slot.name = name;
        slot.identity = identity;
        if (const auto found = rail_of_identity.find(identity); found != rail_of_identity.end()) {
            const int rail = found->second;
            const auto candidate = std::find_if(plan.rails.begin(), plan.rails.end(),
                                                [&](const probe::RailCandidate &c) { return c.identity == identity; });
            slot.name = candidate->name;
            slot.is_tcp = candidate->tls == "tcp";
            std::vector<int> processes(layout_.size, -1);
            for (int peer = 0; peer < layout_.size; ++peer) {
                const bool reached = peer != layout_.rank && addresses[peer].contains(identity) &&
                                     candidate->reaches[host_of_rank[peer]];
                if (!reached)
                    continue;
                FLX_TRY(rails->connect(rail, layout_.members[peer].process, layout_.members[peer].uid,
                                       text_of(addresses[peer][identity]["address"])));
                processes[peer] = layout_.members[peer].process;
                rails->name(layout_.members[peer].process,
                            layout_.most_per_host == 1
                                ? layout_.members[peer].hostname
                                : fmt::format("{} (rank {})", layout_.members[peer].hostname, peer));
            }
            slot.link = rails->link(rail, id_, std::move(processes), knobs_.deadline_s);
        }
        links_.push_back(std::move(slot));
    }
    if (rails != nullptr)
        for (const auto &problem : rails->problems())
            made_.left_off.push_back(problem);
    made_.device_texts.clear();
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

/// How a communicator comes to be: ranks meet, share memory and rails, measure what they have, and agree on what to
/// use.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <random>

#include "probe/cpus.h"
#include "probe/network.h"
#include "runtime/base/clock.h"
#include "runtime/base/descriptors.h"
#include "runtime/base/log.h"
#include "runtime/base/packed.h"
#include "runtime/communicator/communicator.h"
#include "runtime/communicator/wiring_routes.h"
#include "runtime/process/introduction.h"
#include "ucx_glue/rail_wiring.h"

namespace flx {

using nlohmann::json;

namespace {

std::vector<std::string> split_names(const std::string &list) {
    std::vector<std::string> names;
    for (size_t begin = 0; begin <= list.size();) {
        const size_t end = std::min(list.find(',', begin), list.size());
        if (end > begin)
            names.push_back(list.substr(begin, end - begin));
        begin = end + 1;
    }
    return names;
}

template <typename Range>
std::string join(const Range &names) {
    return fmt::format("{}", fmt::join(names, ", "));
}

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

Status Communicator::make(std::shared_ptr<Process> process, std::unique_ptr<Bootstrap> bootstrap, Config config,
                          const Communicator *parent, std::unique_ptr<Communicator> &result, bool devices) {
    auto comm = std::unique_ptr<Communicator>(new Communicator);
    comm->process_ = std::move(process);
    comm->bootstrap_ = std::move(bootstrap);
    comm->config_ = std::move(config);
    comm->knobs_.check = comm->config_.integer("FLX_CHECK") != 0;
    comm->knobs_.deadline_s = comm->config_.real("FLX_DEADLINE");
    comm->knobs_.late_warning_s = comm->config_.real("FLX_LATE_WARNING");
    comm->layout_.rank = comm->bootstrap_->rank();
    comm->layout_.size = comm->bootstrap_->size();
    // Each stage is agreed: a rank that fails tells the others, so that none waits for it. Within a stage nothing that
    // one rank alone may fail in comes before an exchange.
    const auto stage = [&](auto &&body) { return agree_on(*comm->bootstrap_, body); };
    FLX_TRY(stage([&] { return comm->meet(); }));
    FLX_TRY(stage([&] { return comm->make_shared_memory(); }));
    FLX_TRY(stage([&] { return comm->make_rails(); }));
    FLX_TRY(stage([&] { return comm->allow_links(); }));
    FLX_TRY(stage([&] { return comm->exchange_links(); }));
    FLX_TRY(stage([&] { return comm->measure(parent); }));
    comm->drop_failed_links();
    FLX_TRY(stage([&] { return comm->exchange_links(); }));
    FLX_TRY(stage([&] { return comm->routes_.choose_own_rail(comm->config_, comm->lendable()); }));
    FLX_TRY(comm->routes_.exchange_owners(*comm->bootstrap_));
    FLX_TRY(stage([&] { return comm->make_routes(); }));
    if (comm->layout_.size > 1)
        FLX_TRY(comm->routes_.exchange(*comm->bootstrap_));
    FLX_TRY(stage([&] { return comm->make_planner(parent); }));
    FLX_TRY(stage([&] { return comm->connect_rails(); }));
    FLX_TRY(comm->settle_probing());
    comm->settle_liveness();
    comm->leave_idle_rails();
    comm->queue_.set_over_rails(comm->rails_ != nullptr);
    if (comm->rails_ != nullptr)
        comm->policies_.over_rails();
    if (comm->rails_ == nullptr && comm->layout_.hosts == 1 && comm->channel() != nullptr)
        comm->queue_.allow_eager(comm->id_, *comm->channel());
    if (devices)
        FLX_TRY(comm->open_devices_in_use());
    for (size_t l = 0; l < comm->links_.size(); ++l) {
        const LinkCounters probed = comm->counters(static_cast<int>(l));
        comm->links_[l].bytes_before = probed.bytes;
        comm->links_[l].chunks_before = probed.chunks;
    }
    comm->routes_.forget();
    result = std::move(comm);
    return {};
}

Status Communicator::meet() {
    probe::HostDevices devices;
    devices.host = process_->network_host();
    FLX_TRY(agree(*bootstrap_, layout_.size > 1 ? probe::network_devices(devices.devices) : Status()));
    const Introduction mine{process_->uid(),         getpid(),
                            process_->memory_host(), process_->hostname(),
                            probe::to_text(devices), process_->liveness().address(),
                            probe::affinity_mask(),  config_.values_of(KnobScope::communicator)};
    std::vector<std::string> all;
    FLX_TRY(bootstrap_->allgather_text(to_text(mine), all));
    std::vector<std::string> responders(layout_.size);
    FLX_TRY(agree(*bootstrap_, note_members(all, mine, responders)));
    FLX_TRY(meet_responders(responders));
    FLX_TRY(take_id());
    configure_log(config_.text("FLX_LOG"), layout_.rank);

    policies_.set(config_.integer("FLX_SPIN_US"), config_.integer("FLX_SLEEP_US"), crowded());
    return bootstrap_->split(layout_.host, layout_.rank, made_.local);
}

/// By all of the program's ranks on this host, not by those of this communicator: others need cores, too.
bool Communicator::crowded() const {
    std::vector<probe::CpuMask> here;
    for (const Member &member : layout_.members)
        if (member.host == layout_.host)
            here.push_back(member.cpus);
    return probe::crowded(process_->ranks_here(std::max(layout_.here, bootstrap_->ranks_on_host())), here,
                          probe::cpu_limit());
}

/// What each rank said of itself when they met.
Status Communicator::note_members(const std::vector<std::string> &all, const Introduction &mine,
                                  std::vector<std::string> &responders) {
    std::map<std::string, int> hosts;
    std::vector<int> on_host;
    layout_.members.resize(layout_.size);
    made_.device_texts.resize(layout_.size);
    for (int rank = 0; rank < layout_.size; ++rank) {
        Introduction theirs;
        FLX_TRY(read_introduction(all[rank], rank, mine, layout_.rank, theirs));
        Member &member = layout_.members[rank];
        member.uid = theirs.uid;
        member.pid = theirs.pid;
        member.hostname = std::move(theirs.hostname);
        member.cpus = std::move(theirs.cpus);
        member.host = hosts.try_emplace(std::move(theirs.memory_host), static_cast<int>(hosts.size())).first->second;
        on_host.resize(hosts.size());
        member.local = on_host[member.host]++;
        member.process = process_->index_of(member.uid);
        made_.device_texts[rank] = std::move(theirs.devices);
        responders[rank] = std::move(theirs.liveness);
    }
    layout_.hosts = static_cast<int>(hosts.size());
    layout_.host = layout_.members[layout_.rank].host;
    layout_.most_per_host = *std::max_element(on_host.begin(), on_host.end());
    layout_.here = on_host[layout_.host];
    return {};
}

/// Each rank learns where the others' responders are. Those of one host listen on its loopback interface alone. One
/// rank of each other host is asked at once, so that it is known early whether it can be.
Status Communicator::meet_responders(std::vector<std::string> &addresses) {
    Liveness &liveness = process_->liveness();
    const auto find_hosts = [&](bool &apart) -> Status {
        apart = layout_.hosts > 1;
        std::string first;
        for (int rank = 0; rank < layout_.size && layout_.size > 1; ++rank) {
            probe::HostDevices devices;
            FLX_TRY(probe::parse_host_devices(made_.device_texts[rank], devices));
            apart = apart || (rank != 0 && devices.host != first);
            first = devices.host;
        }
        return {};
    };
    bool apart = false;
    FLX_TRY(agree(*bootstrap_, find_hosts(apart)));
    if (apart) {
        liveness.open_network();
        FLX_TRY(bootstrap_->allgather_text(liveness.address(), addresses));
    }
    const auto add_all = [&]() -> Status {
        for (int rank = 0; rank < layout_.size; ++rank)
            if (rank != layout_.rank)
                FLX_TRY(liveness.add_peer(layout_.members[rank].uid, addresses[rank]));
        return {};
    };
    FLX_TRY(agree(*bootstrap_, add_all()));
    std::vector<int> of_host(layout_.hosts);
    for (const Member &member : layout_.members)
        ++of_host[member.host];
    for (int rank = 0; rank < layout_.size; ++rank) {
        const Member &member = layout_.members[rank];
        if (member.host == layout_.host || member.local != layout_.members[layout_.rank].local % of_host[member.host])
            continue;
        made_.tried.push_back(rank);
        liveness.ask(member.uid, 0);
    }
    return {};
}

/// By now those that were asked have answered, where datagrams come through. Where they do not, this takes as long as a
/// connection does.
void Communicator::settle_liveness() {
    constexpr int64_t kPatienceNs = 1'500'000'000;
    constexpr timespec kNap{0, 200'000};
    const Liveness &liveness = process_->liveness();
    const int64_t end = now_ns() + kPatienceNs;
    for (const int rank : made_.tried) {
        const Member &member = layout_.members[rank];
        while (liveness.asked(member.uid) == Asked::unanswered && now_ns() < end) {
            process_->liveness().ask(member.uid, 0);
            nanosleep(&kNap, nullptr);
        }
        switch (liveness.asked(member.uid)) {
            case Asked::by_datagram:
                continue;
            case Asked::by_stream:
                made_.liveness_notes.push_back(fmt::format("TCP to {}: datagrams do not arrive", member.hostname));
                break;
            case Asked::unanswered:
                made_.liveness_notes.push_back(fmt::format(
                    "none to {}: neither datagrams nor TCP connections arrive, so a rank there that is late "
                    "by more than FLX_DEADLINE is taken for dead",
                    member.hostname));
                log().warn("liveness: {}", made_.liveness_notes.back());
                continue;
        }
        log().info("liveness: {}", made_.liveness_notes.back());
    }
    made_.tried.clear();
}

/// An id that is unique in every member's process, also where several threads make communicators at once.
Status Communicator::take_id() {
    uint32_t ahead = 0;
    for (bool taken = false; !taken;) {
        const uint32_t proposed = process_->free_comm_id() + ahead;
        std::vector<uint32_t> all(layout_.size);
        FLX_TRY(bootstrap_->allgather(&proposed, sizeof proposed, all.data()));
        id_ = *std::max_element(all.begin(), all.end());
        const uint32_t claimed = process_->claim_comm_id(id_) ? 1 : 0;
        FLX_TRY(bootstrap_->allgather(&claimed, sizeof claimed, all.data()));
        taken = std::find(all.begin(), all.end(), 0U) == all.end();
        // Two threads whose communicators want the same id part at random; the greater id is then free everywhere.
        constexpr uint32_t kFarthest = 16;
        ahead = std::random_device()() % kFarthest;
    }
    return {};
}

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

/// FLX_LINKS.
Status Communicator::allow_links() {
    if (layout_.size == 1)
        return {};  // a part of a communicator whose knobs name links that one rank alone does not have
    const std::vector<std::string> names = names_of(links_);
    if (const std::string &links = config_.text("FLX_LINKS"); !links.empty() && links != "auto") {
        const std::vector<std::string> allowed = split_names(links);
        for (const std::string &name : allowed)
            if (std::find(names.begin(), names.end(), name) == names.end())
                return fail(FLX_ERR_CONFIG, "FLX_LINKS names {}; the links are {}", name, join(names));
        for (LinkSlot &slot : links_) {
            if (std::find(allowed.begin(), allowed.end(), slot.name) == allowed.end()) {
                slot.why_off = "not in FLX_LINKS";
                slot.link.reset();
            }
        }
        if (links_[0].link == nullptr)
            leave_shared_memory();
    }
    return {};
}

/// Each rank learns which links the others have: a rail may have failed to open there, or not be allowed. A link is
/// used between two ranks that both have it.
Status Communicator::exchange_links() {
    FLX_TRY(routes_.exchange_links(*bootstrap_));
    for (int peer = 0; peer < layout_.size; ++peer) {
        bool reached = peer == layout_.rank;
        for (size_t l = 0; l < links_.size(); ++l) {
            reached = reached || routes_.reaches(l, peer);
            if (links_[l].is_rail() && peer != layout_.rank && !routes_.has(peer, l))
                ucx::part(*links_[l].link, peer);
        }
        if (!reached) {
            std::string reasons;
            for (const LinkSlot &slot : links_)
                if (!slot.why_off.empty())
                    reasons += fmt::format("; {}: {}", slot.name, slot.why_off);
            for (const auto &[name, why] : made_.left_off)
                reasons += fmt::format("; {}: {}", name, why);
            return fail(FLX_ERR_LINK, "no link reaches {} from {}{}", layout_.describe(peer),
                        layout_.describe(layout_.rank), reasons);
        }
    }
    return {};
}

/// A rail on which a connection failed while it was measured is not used, rather than break the first operation.
void Communicator::drop_failed_links() {
    for (size_t l = 0; l < links_.size(); ++l) {
        for (int peer = 0; peer < layout_.size && links_[l].link != nullptr; ++peer) {
            if (peer == layout_.rank || !routes_.reaches(l, peer))
                continue;
            const Status status = links_[l].link->error(peer);
            if (status.ok())
                continue;
            links_[l].why_off = status.sentence();
            links_[l].link.reset();
            log().warn("{} is not used: {}", links_[l].name, status.sentence());
        }
    }
}

/// Memory in which ranks of this host say which rails they use; null where none are lent.
std::byte *Communicator::lendable() const {
    return forced_shares().empty() ? memory_.ledger : nullptr;
}

Status Communicator::make_routes() {
    if (layout_.size == 1)
        return {};
    PartitionVector forced;
    if (const std::string shares = forced_shares(); !shares.empty()) {
        FLX_TRY(parse_partition(shares, names_of(links_), forced));
        if (links_[0].link == nullptr || forced.weight[0] != PartitionVector::kWhole)
            leave_shared_memory();  // The caller wants to see its bytes on these links.
    }
    routes_.share_records(memory_.records);
    FLX_TRY(routes_.make(config_, forced));
    // What waits in the network must outlast the moments in which processes have no core; the buffers of switches and
    // shapers often hold some 20 ms of their rate.
    constexpr double kWindowNs = 8e6;
    constexpr double kLeast = 256 << 10;
    for (size_t l = 0; l < links_.size() && memory_.loads != nullptr; ++l)
        if (const double rate = links_[l].far.host_bytes_per_ns; links_[l].is_rail() && rate > 0) {
            const auto most = static_cast<uint64_t>(std::max(rate * kWindowNs, kLeast));
            links_[l].link->share({&memory_.loads[l], most, most / static_cast<uint64_t>(layout_.here)});
        }
    queue_.start(id_);
    const auto ranks = static_cast<size_t>(layout_.size);
    wait_.awaited.reserve(2 * ranks);  // a long wait looks at them, and is part of the steady state
    wait_.crossed.resize(ranks);
    wait_.given.resize(2 * ranks);
    process_->liveness().say_of(id_, [this](uint64_t number, std::span<std::byte> said) {
        return write_answer(calls_, process_->blocked_call().get(), number, said);
    });
    entry_.locks = process_->threads();
    if (config_.text("FLX_PROGRESS_THREAD") == "on") {
        entry_.locks = true;
        entry_.thread = ProgressThread::shared();
        entry_.thread->add(*this);
    }
    process_->add(*this);
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

Status Communicator::make_planner(const Communicator *parent) {
    FLX_TRY(choose_ways(parent));
    Agreed agreed;
    agreed.size = layout_.size;
    agreed.hosts = layout_.hosts;
    std::vector<int> host_of;
    for (const Member &member : layout_.members)
        host_of.push_back(member.host);
    agreed.placement = algorithms::Placement::of(host_of);
    agreed.costs = made_.costs;
    agreed.fused_bytes = layout_.hosts == 1 ? config_.size("FLX_FUSED_BYTES") : 0;
    agreed.staged_bytes = made_.staged_bytes;
    agreed.strict = config_.integer("FLX_STRICT") != 0;
    if (on_host_.ways != nullptr) {
        agreed.shared_memory = true;
        agreed.peer_memory = on_host_.ways->fetches();
        agreed.ways = on_host_.ways->ways();
    }
    return decisions_.make(layout_.rank, agreed, config_.text("FLX_ALGORITHM"));
}

}  // namespace flx

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

/// On a machine without a free core a probe of some ms may see next to nothing of a rail, thousands of times its rate
/// of another whose receiver took all at once, and peers that answer late. Until it has carried something no rail is
/// taken to be so much slower or further away than the best that it would carry nothing, and be judged by an offer's
/// chunks.
void distrust(std::vector<LinkEstimate> &rails) {
    constexpr double kMostRatio = 16;
    constexpr double kLatencyRatio = 4;
    constexpr double kNear = 2e6;  // ns; on a network that may be so at any time
    double nearest = std::numeric_limits<double>::infinity();
    double alone = 0;
    double together = 0;
    for (const LinkEstimate &rail : rails) {
        alone = rail.usable ? std::max(alone, rail.bytes_per_ns) : alone;
        together = rail.usable ? std::max(together, rail.together_bytes_per_ns) : together;
        nearest = rail.usable ? std::min(nearest, rail.latency_ns) : nearest;
    }
    for (LinkEstimate &rail : rails) {
        if (!rail.usable || rail.bytes_per_ns <= 0)
            continue;
        rail.latency_ns = std::min(rail.latency_ns, std::max(kLatencyRatio * nearest, kNear));
        rail.bytes_per_ns = std::max(rail.bytes_per_ns, alone / kMostRatio);
        if (rail.together_bytes_per_ns > 0)
            rail.together_bytes_per_ns = std::max(rail.together_bytes_per_ns, together / kMostRatio);
    }
}

}  // namespace

Status Communicator::make(std::shared_ptr<Process> process, std::unique_ptr<Bootstrap> bootstrap, Config config,
                          const Communicator *parent, std::unique_ptr<Communicator> &result, bool devices) {
    auto comm = std::unique_ptr<Communicator>(new Communicator);
    comm->process_ = std::move(process);
    comm->bootstrap_ = std::move(bootstrap);
    comm->config_ = std::move(config);
    comm->check_ = comm->config_.integer("FLX_CHECK") != 0;
    comm->deadline_s_ = comm->config_.real("FLX_DEADLINE");
    comm->late_warning_s_ = comm->config_.real("FLX_LATE_WARNING");
    comm->rank_ = comm->bootstrap_->rank();
    comm->size_ = comm->bootstrap_->size();
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
    FLX_TRY(stage([&] { return comm->own_rail(); }));
    FLX_TRY(comm->exchange_owners());
    FLX_TRY(stage([&] { return comm->make_routes(); }));
    FLX_TRY(comm->exchange_routes());
    FLX_TRY(stage([&] { return comm->make_planner(parent); }));
    FLX_TRY(stage([&] { return comm->connect_rails(); }));
    FLX_TRY(comm->settle_probing());
    comm->settle_liveness();
    comm->leave_idle_rails();
    comm->make_brief_policies();
    if (comm->rails_ == nullptr && comm->hosts_ == 1 && comm->channel() != nullptr)
        comm->eager_ = std::make_unique<Eager>(comm->id_, *comm->channel(), 0, *comm->inbox_, comm->size_);
    if (devices)
        FLX_TRY(comm->open_devices_in_use());
    for (size_t l = 0; l < comm->links_.size(); ++l) {
        const LinkCounters probed = comm->counters(static_cast<int>(l));
        comm->links_[l].bytes_before = probed.bytes;
        comm->links_[l].chunks_before = probed.chunks;
    }
    comm->forget_probing();
    result = std::move(comm);
    return {};
}

/// The knobs that decide matters which ranks must decide alike, as text.
std::string Communicator::agreed_knobs() const {
    // A rank that sends on a link must find the others listening there, so links and forced shares are among them, and
    // take chunks of the size that it cuts. Looks at ways are steps of their own, which all ranks or none take.
    return fmt::format(
        "FLX_ALGORITHM={} FLX_STRICT={} FLX_CHECK={} FLX_FUSED_BYTES={} FLX_SHM_BYTES={} FLX_FROZEN={} FLX_LINKS={} "
        "FLX_PARTITION={} FLX_PROBE_MS={} FLX_RAIL_CHUNK={} FLX_LEND={} FLX_LEND_CHUNKS={} FLX_CUDA_TIERS={}",
        config_.text("FLX_ALGORITHM"), config_.integer("FLX_STRICT"), config_.integer("FLX_CHECK"),
        config_.size("FLX_FUSED_BYTES"), config_.size("FLX_SHM_BYTES"), config_.integer("FLX_FROZEN"),
        config_.text("FLX_LINKS"), config_.text("FLX_PARTITION"), config_.integer("FLX_PROBE_MS"),
        config_.size("FLX_RAIL_CHUNK"), config_.text("FLX_LEND"), config_.integer("FLX_LEND_CHUNKS"),
        config_.text("FLX_CUDA_TIERS"));
}

Status Communicator::meet() {
    probe::HostDevices devices;
    devices.host = process_->network_host();
    FLX_TRY(agree(*bootstrap_, size_ > 1 ? probe::network_devices(devices.devices) : Status()));
    const Introduction mine{process_->uid(),         getpid(),
                            process_->memory_host(), process_->hostname(),
                            probe::to_text(devices), process_->liveness().address(),
                            probe::affinity_mask(),  agreed_knobs()};
    std::vector<std::string> all;
    FLX_TRY(bootstrap_->allgather_text(to_text(mine), all));
    std::vector<std::string> responders(size_);
    FLX_TRY(agree(*bootstrap_, note_members(all, mine, responders)));
    FLX_TRY(meet_responders(responders));
    FLX_TRY(take_id());
    configure_log(config_.text("FLX_LOG"), rank_);

    // Whoever shares its cores with other ranks must not spin while one of them has work.
    constexpr int kPausesPerUs = 20;
    // Where others need the core, a rank that has yielded for a while is not expected soon.
    constexpr int64_t kSleepAfterUs = 5000;
    constexpr int64_t kCrowdedSleepAfterUs = 1000;
    constexpr int64_t kNsPerUs = 1000;
    const int64_t spin_us = config_.integer("FLX_SPIN_US");
    const int64_t sleep_us = config_.integer("FLX_SLEEP_US");
    const auto set = [&](WaitPolicy &policy, bool crowded) {
        if (spin_us >= 0)
            policy.spins = static_cast<int>(spin_us * kPausesPerUs);
        else if (crowded)
            policy.spins = 0;
        policy.alone = policy.spins > 0 && !crowded;
        policy.sleep_after_ns = kNsPerUs * (sleep_us >= 0 ? sleep_us : crowded ? kCrowdedSleepAfterUs : kSleepAfterUs);
    };
    set(wait_policy_, crowded());
    set(shared_policy_, true);
    return bootstrap_->split(host_, rank_, local_);
}

/// By all of the program's ranks on this host, not by those of this communicator: others need cores, too.
bool Communicator::crowded() const {
    std::vector<probe::CpuMask> here;
    for (const Member &member : members_)
        if (member.host == host_)
            here.push_back(member.cpus);
    return probe::crowded(process_->ranks_here(std::max(ranks_here_, bootstrap_->ranks_on_host())), here,
                          probe::cpu_limit());
}

/// What each rank said of itself when they met.
Status Communicator::note_members(const std::vector<std::string> &all, const Introduction &mine,
                                  std::vector<std::string> &responders) {
    std::map<std::string, int> hosts;
    std::vector<int> on_host;
    members_.resize(size_);
    device_texts_.resize(size_);
    for (int rank = 0; rank < size_; ++rank) {
        Introduction theirs;
        FLX_TRY(read_introduction(all[rank], rank, mine, rank_, theirs));
        Member &member = members_[rank];
        member.uid = theirs.uid;
        member.pid = theirs.pid;
        member.hostname = std::move(theirs.hostname);
        member.cpus = std::move(theirs.cpus);
        member.host = hosts.try_emplace(std::move(theirs.memory_host), static_cast<int>(hosts.size())).first->second;
        on_host.resize(hosts.size());
        member.local = on_host[member.host]++;
        member.process = process_->index_of(member.uid);
        device_texts_[rank] = std::move(theirs.devices);
        responders[rank] = std::move(theirs.liveness);
    }
    hosts_ = static_cast<int>(hosts.size());
    host_ = members_[rank_].host;
    most_per_host_ = *std::max_element(on_host.begin(), on_host.end());
    ranks_here_ = on_host[host_];
    return {};
}

/// Each rank learns where the others' responders are. Those of one host listen on its loopback interface alone. One
/// rank of each other host is asked at once, so that it is known early whether it can be.
Status Communicator::meet_responders(std::vector<std::string> &addresses) {
    Liveness &liveness = process_->liveness();
    const auto find_hosts = [&](bool &apart) -> Status {
        apart = hosts_ > 1;
        std::string first;
        for (int rank = 0; rank < size_ && size_ > 1; ++rank) {
            probe::HostDevices devices;
            FLX_TRY(probe::parse_host_devices(device_texts_[rank], devices));
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
        for (int rank = 0; rank < size_; ++rank)
            if (rank != rank_)
                FLX_TRY(liveness.add_peer(members_[rank].uid, addresses[rank]));
        return {};
    };
    FLX_TRY(agree(*bootstrap_, add_all()));
    std::vector<int> of_host(hosts_);
    for (const Member &member : members_)
        ++of_host[member.host];
    for (int rank = 0; rank < size_; ++rank) {
        const Member &member = members_[rank];
        if (member.host == host_ || member.local != members_[rank_].local % of_host[member.host])
            continue;
        tried_.push_back(rank);
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
    for (const int rank : tried_) {
        const Member &member = members_[rank];
        while (liveness.asked(member.uid) == Asked::unanswered && now_ns() < end) {
            process_->liveness().ask(member.uid, 0);
            nanosleep(&kNap, nullptr);
        }
        switch (liveness.asked(member.uid)) {
            case Asked::by_datagram:
                continue;
            case Asked::by_stream:
                liveness_notes_.push_back(fmt::format("TCP to {}: datagrams do not arrive", member.hostname));
                break;
            case Asked::unanswered:
                liveness_notes_.push_back(fmt::format(
                    "none to {}: neither datagrams nor TCP connections arrive, so a rank there that is late "
                    "by more than FLX_DEADLINE is taken for dead",
                    member.hostname));
                log().warn("liveness: {}", liveness_notes_.back());
                continue;
        }
        log().info("liveness: {}", liveness_notes_.back());
    }
    tried_.clear();
}

/// An id that is unique in every member's process, also where several threads make communicators at once.
Status Communicator::take_id() {
    uint32_t ahead = 0;
    for (bool taken = false; !taken;) {
        const uint32_t proposed = process_->free_comm_id() + ahead;
        std::vector<uint32_t> all(size_);
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
    if (size_ == 1)
        return {};
    std::vector<int> host_of_rank;
    probe::RailPlan plan;
    std::vector<probe::LooseEnd> loose;
    const auto plan_rails = [&]() -> Status {
        std::vector<probe::HostDevices> by_rank(size_);
        for (int rank = 0; rank < size_; ++rank)
            FLX_TRY(probe::parse_host_devices(device_texts_[rank], by_rank[rank]));
        std::vector<probe::HostDevices> hosts;
        probe::group_hosts(by_rank, hosts, host_of_rank);
        const std::string &selection = config_.text("FLX_RAILS");
        if (selection == "none")
            return {};
        loose = probe::loose_ends(hosts, host_of_rank[rank_], selection == "auto" ? "" : selection);
        return probe::plan_rails(hosts, host_of_rank[rank_], selection == "auto" ? "" : selection, kMaxLinks - 1, plan);
    };
    FLX_TRY(join_networks(*bootstrap_, plan_rails(), host_of_rank, loose, kMaxLinks - 1, plan));
    left_off_ = plan.left_off;
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
        for (int peer = 0; peer < size_ && candidate->tls == "tcp"; ++peer)
            if (peer != rank_ && candidate->reaches[host_of_rank[peer]] &&
                !(by_memory && members_[peer].host == host_) && !ucx::knows(*rails, rail, members_[peer].process))
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
    std::vector<json> addresses(size_);
    std::map<std::string, std::string> names;  // by identity, as the lowest rank that has it calls it
    for (int rank = 0; rank < size_; ++rank) {
        FLX_TRY(unpack(all[rank], rank, addresses[rank]));
        for (const auto &[identity, rail] : addresses[rank]["rails"].items())
            names.try_emplace(identity, rail["name"]);
    }
    const size_t before = left_off_.size();
    if (size_ <= kConnectedAtOnce)
        leave_costly_rails(
            addresses, [&](int rank) { return describe(rank); }, names, left_off_);
    else if (wanted > own.spare())
        log().warn(
            "connections to all peers over all rails would take {} descriptors, and {} are left of {}: should "
            "connections fail, raise `ulimit -Hn`, or name fewer rails in FLX_RAILS",
            wanted, own.spare(), own.allowed);
    for (size_t i = before; i < left_off_.size() && rank_ == 0; ++i)
        log().warn("{} is not used: {}", left_off_[i].first, left_off_[i].second);
    for (json &theirs : addresses) {
        json rails = std::move(theirs["rails"]);
        theirs = std::move(rails);
    }
    for (const auto &entry : names) {
        const std::string &identity = entry.first;
        const std::string &name = entry.second;
        if (links_.size() == kMaxLinks) {
            left_off_.emplace_back(name, fmt::format("a communicator has at most {} links", kMaxLinks));
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
            std::vector<int> processes(size_, -1);
            for (int peer = 0; peer < size_; ++peer) {
                const bool reached =
                    peer != rank_ && addresses[peer].contains(identity) && candidate->reaches[host_of_rank[peer]];
                if (!reached)
                    continue;
                FLX_TRY(rails->connect(rail, members_[peer].process, members_[peer].uid,
                                       text_of(addresses[peer][identity]["address"])));
                processes[peer] = members_[peer].process;
                rails->name(members_[peer].process, most_per_host_ == 1
                                                        ? members_[peer].hostname
                                                        : fmt::format("{} (rank {})", members_[peer].hostname, peer));
            }
            slot.link = rails->link(rail, id_, std::move(processes), deadline_s_);
        }
        links_.push_back(std::move(slot));
    }
    if (rails != nullptr)
        for (const auto &problem : rails->problems())
            left_off_.push_back(problem);
    device_texts_.clear();
    return {};
}

/// FLX_LINKS.
Status Communicator::allow_links() {
    if (size_ == 1)
        return {};  // a part of a communicator whose knobs name links that one rank alone does not have
    std::vector<std::string> names;
    for (const LinkSlot &slot : links_)
        names.push_back(slot.name);
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
    uint32_t mine = 0;
    for (size_t l = 0; l < links_.size(); ++l)
        mine |= links_[l].link != nullptr ? 1U << l : 0;
    have_.resize(size_);
    FLX_TRY(bootstrap_->allgather(&mine, sizeof mine, have_.data()));
    for (int peer = 0; peer < size_; ++peer) {
        bool reached = peer == rank_;
        for (size_t l = 0; l < links_.size(); ++l) {
            reached = reached || reaches(l, peer);
            Link *link = links_[l].link.get();
            if (link != nullptr && link->kind() == LinkKind::rail && peer != rank_ && (have_[peer] >> l & 1) == 0)
                ucx::part(*link, peer);
        }
        if (!reached) {
            std::string reasons;
            for (const LinkSlot &slot : links_)
                if (!slot.why_off.empty())
                    reasons += fmt::format("; {}: {}", slot.name, slot.why_off);
            for (const auto &[name, why] : left_off_)
                reasons += fmt::format("; {}: {}", name, why);
            return fail(FLX_ERR_LINK, "no link reaches {} from {}{}", describe(peer), describe(rank_), reasons);
        }
    }
    return {};
}

bool Communicator::reaches(size_t link, int peer) const {
    return links_[link].link && links_[link].link->reaches(peer) && (have_[peer] >> link & 1) != 0;
}

/// A rail on which a connection failed while it was measured is not used, rather than break the first operation.
void Communicator::drop_failed_links() {
    for (size_t l = 0; l < links_.size(); ++l) {
        for (int peer = 0; peer < size_ && links_[l].link != nullptr; ++peer) {
            if (peer == rank_ || !reaches(l, peer))
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

/// FLX_LEND and FLX_OWN_RAIL: which rail is this rank's own. None where that would change nothing: with one rank on the
/// host, or one rail.
Status Communicator::own_rail() {
    const std::string &lend = config_.text("FLX_LEND");
    if (ledger_ == nullptr || lend == "off" || !forced_shares().empty())
        return {};
    std::vector<size_t> rails;  // of this host, to others
    for (size_t l = 1; l < links_.size(); ++l)
        for (int peer = 0; peer < size_; ++peer)
            if (members_[peer].host != host_ && reaches(l, peer)) {
                rails.push_back(l);
                break;
            }
    const std::string &wanted = config_.text("FLX_OWN_RAIL");
    if (rails.size() < 2 || wanted == "none")
        return {};
    size_t own = rails[members_[rank_].local % rails.size()];
    if (wanted != "auto") {
        const auto named = std::find_if(rails.begin(), rails.end(), [&](size_t l) { return links_[l].name == wanted; });
        if (named == rails.end()) {
            std::vector<std::string> names;
            for (const size_t l : rails)
                names.push_back(links_[l].name);
            return fail(FLX_ERR_CONFIG, "FLX_OWN_RAIL is {}; the rails of rank {} are {}", wanted, rank_, join(names));
        }
        own = *named;
    }
    own_rail_ = static_cast<int>(own);
    log().info("rank {} owns rail {}{}", rank_, links_[own].name,
               lend == "own" ? " and uses no other" : " and borrows the others while they are idle");
    return {};
}

Status Communicator::exchange_owners() {
    const uint32_t mine = own_rail_ >= 0 ? 1U << own_rail_ : 0;
    owned_.assign(size_, 0);
    return size_ == 1 ? Status() : bootstrap_->allgather(&mine, sizeof mine, owned_.data());
}

void Communicator::lend_rails() {
    // Receivers tell senders of their owners, so whoever has a ledger takes part, also without a rail of its own.
    const bool any = std::any_of(owned_.begin(), owned_.end(), [](uint32_t owned) { return owned != 0; });
    if (!any || ledger_ == nullptr || config_.text("FLX_LEND") != "on")
        return;
    std::vector<Lending::Member> members(size_);
    for (int rank = 0; rank < size_; ++rank)
        members[rank] = {members_[rank].host, owned_[rank]};
    lending_ = std::make_unique<Lending>(ledger_, rank_, std::move(members), hosts_,
                                         static_cast<uint32_t>(config_.integer("FLX_LEND_CHUNKS")));
    if (own_rail_ >= 0) {
        std::vector<double> shares(links_.size());
        shares[own_rail_] = 1;
        own_vector_ = make_partition(shares);
    }
    for (size_t l = 1; l < links_.size(); ++l) {
        if (links_[l].link == nullptr)
            continue;
        const LinkMeasured &far = links_[l].far;
        auto lent = std::make_unique<LentLink>(
            std::move(links_[l].link), *lending_, static_cast<int>(l),
            far.done ? LentLink::Believed{far.bytes_per_ns, far.latency_ns} : LentLink::Believed{});
        lent_.push_back(lent.get());
        links_[l].link = std::move(lent);
    }
}

Status Communicator::make_routes() {
    if (size_ == 1)
        return {};
    routes_.resize(hosts_);
    for (int peer = 0; peer < size_; ++peer)
        if (peer != rank_)
            routes_[members_[peer].host].peers.push_back(peer);
    std::vector<std::string> names;
    for (const LinkSlot &slot : links_)
        names.push_back(slot.name);
    PartitionVector forced;
    const std::string shares = forced_shares();
    const bool is_forced = !shares.empty();
    if (is_forced)
        FLX_TRY(parse_partition(shares, names, forced));
    if (is_forced && (links_[0].link == nullptr || forced.weight[0] != PartitionVector::kWhole))
        leave_shared_memory();  // The caller wants to see its bytes on these links.

    forced_ = is_forced;
    lost_.assign(size_, 0);
    ControllerOptions options;
    options.frozen = is_forced || config_.integer("FLX_FROZEN") != 0;
    for (int host = 0; host < hosts_; ++host) {
        Route &route = routes_[host];
        if (route.peers.empty())
            continue;
        route.seen.resize(links_.size());
        route.told.resize(kSizeClasses);
        const auto reaches_every = [&](size_t l) {
            return std::all_of(route.peers.begin(), route.peers.end(), [&](int peer) { return reaches(l, peer); });
        };
        // Where there are other hosts, rails are for them: within a host they only take cores and memory from what goes
        // through shared memory, and from the rails' own traffic. On one host TCP is memory as well, by a longer way: a
        // probe that prefers it was disturbed. Who names links may have reasons.
        const bool may_share = !is_forced && host == host_ && links_[0].near.done && reaches_every(0);
        const bool named = config_.text("FLX_LINKS") != "auto" && !config_.text("FLX_LINKS").empty();
        const auto left_to_memory = [&](size_t l) {
            return may_share && l != 0 && (hosts_ > 1 || (links_[l].is_tcp && !named));
        };
        // Where the own rail leads, others' are not used unless they are lent.
        const bool own_only =
            own_rail_ >= 0 && config_.text("FLX_LEND") == "own" && host != host_ && reaches_every(own_rail_);
        const auto reaches_all = [&](size_t l) {
            return reaches_every(l) && (!own_only || static_cast<int>(l) == own_rail_) && !left_to_memory(l);
        };
        if (is_forced) {
            std::vector<double> shares(links_.size());
            double sum = 0;
            for (size_t l = 0; l < links_.size(); ++l) {
                shares[l] = reaches_all(l) ? forced.share(static_cast<int>(l)) : 0;
                sum += shares[l];
                route.links |= shares[l] > 0 ? 1U << l : 0;
            }
            if (sum <= 0)
                return fail(FLX_ERR_CONFIG, "FLX_PARTITION {} gives no share to a link that reaches {}",
                            config_.text("FLX_PARTITION"), describe(route.peers.front()));
            route.controller = std::make_unique<Controller>(make_partition(shares), options);
        } else {
            // Within a host the set of links is fixed by what all ranks measured, so that nobody polls in vain.
            ControllerOptions mine = options;
            mine.burst_ns = 40e6;  // a shaper's bucket is often 10 ms of its rate
            if (host == host_) {
                mine.burst_ns = 0;
                constexpr double kGainWithinHost = 0.2;  // what is real there is far from the threshold, noise is not
                mine.explore_every = 0;
                mine.min_gain = kGainWithinHost;
            }
            std::vector<LinkEstimate> estimates;
            bool any = false;
            for (size_t l = 0; l < links_.size(); ++l) {
                const LinkMeasured &measured = host == host_ ? links_[l].near : links_[l].far;
                estimates.push_back({measured.latency_ns, measured.bytes_per_ns, measured.together_bytes_per_ns,
                                     reaches_all(l) && measured.done, measured.small_ns});
                any = any || estimates.back().usable;
            }
            if (host != host_)
                distrust(estimates);
            if (!any) {
                // Machines that are busy may answer too late to be measured. What reaches the peers must do.
                log().warn(
                    "no link to host {} answered while links were measured; all that reach it are taken as alike",
                    members_[route.peers.front()].hostname);
                for (size_t l = 0; l < links_.size(); ++l) {
                    estimates[l] = {};
                    estimates[l].usable = reaches_all(l);
                    if (estimates[l].usable)
                        links_[l].why_off.clear();
                }
            }
            route.controller = std::make_unique<Controller>(estimates, mine);
            if (host == host_ && reaches_all(0) && !route.controller->verdict(0).on) {
                // Rails within a host go through the same memory: a probe that prefers them was disturbed.
                for (size_t l = 1; l < estimates.size(); ++l)
                    estimates[l].usable = false;
                estimates[0].usable = true;  // also where only the rails could be measured
                route.controller = std::make_unique<Controller>(estimates, mine);
            }
            for (size_t l = 0; l < links_.size(); ++l) {
                const LinkVerdict verdict = route.controller->verdict(static_cast<int>(l), names);
                const bool carries = reaches_all(l) && (verdict.on || host != host_);
                route.links |= carries ? 1U << l : 0;
                if (reaches_all(l) && !verdict.on && links_[l].why_off.empty())
                    links_[l].why_off = verdict.why;
                if (hosts_ == 1 && left_to_memory(l) && reaches_every(l) && links_[l].why_off.empty())
                    links_[l].why_off = fmt::format(
                        "within one host TCP goes through the memory that ranks share ({:.2f} GB/s alone, {} {:.2f})",
                        links_[l].near.bytes_per_ns, links_[0].name, links_[0].near.bytes_per_ns);
            }
        }
        learns_ = learns_ || std::popcount(route.links) > 1;
    }
    lend_rails();
    for (const LinkSlot &slot : links_)
        executor_links_.push_back(slot.link.get());
    awaited_.reserve(2 * static_cast<size_t>(size_));  // a long wait looks at them, and is part of the steady state
    crossed_.resize(static_cast<size_t>(size_));
    given_.resize(2 * static_cast<size_t>(size_));
    process_->liveness().say_of(id_, [this](uint64_t number, std::span<std::byte> said) {
        return write_answer(calls_, process_->blocked_call().get(), number, said);
    });
    message_counts_ = MessageCounts(size_);
    inbox_ = std::make_unique<Inbox>(size_);
    constexpr size_t kUsual = 16;  // under way; more is possible, and counted as an allocation
    for (auto *list : {&idle_pendings_, &queue_, &running_})
        list->reserve(kUsual);
    idle_executors_.reserve(kUsual);
    idle_executors_.push_back(&idle_executor());
    recycle(acquire());
    locks_ = process_->threads();
    if (config_.text("FLX_PROGRESS_THREAD") == "on") {
        locks_ = true;
        thread_ = ProgressThread::shared();
        thread_->add(*this);
    }
    process_->add(*this);
    return {};
}

/// Each rank learns over which links the others may send to it, as their choice need not be its own: shares may be
/// forced on one rank, or one rank of a host may lack a rail.
Status Communicator::exchange_routes() {
    if (size_ == 1)
        return {};
    std::vector<uint32_t> &mine = outgoing_;
    mine.assign(hosts_, 0);
    for (int host = 0; host < hosts_; ++host) {
        mine[host] = routes_[host].links;
        // What a lost rail took goes over any other, whether it has a share or not.
        bool rails = false;
        uint32_t others = 0;
        for (size_t l = 0; l < links_.size(); ++l) {
            const Link *link = links_[l].link.get();
            if (link == nullptr || link->kind() != LinkKind::rail || routes_[host].peers.empty())
                continue;
            rails = rails || (routes_[host].links >> l & 1) != 0;
            others |= 1U << l;
        }
        mine[host] |= rails ? others : 0;
    }
    std::vector<uint32_t> all(mine.size() * size_);
    FLX_TRY(bootstrap_->allgather(mine.data(), mine.size() * sizeof(uint32_t), all.data()));
    incoming_.assign(size_, 0);
    for (int peer = 0; peer < size_; ++peer)
        for (uint32_t mask = peer != rank_ ? all[peer * mine.size() + host_] : 0; mask != 0; mask &= mask - 1)
            if (const int link = std::countr_zero(mask); reaches(link, peer))
                incoming_[peer] |= 1U << link;
    return {};
}

/// Rails over which no rank sends need not be looked at by calls.
void Communicator::leave_idle_rails() {
    uint32_t used = 0;
    for (int peer = 0; peer < size_; ++peer)
        if (peer != rank_)
            used |= incoming_[peer] | outgoing_[members_[peer].host];
    for (size_t l = 0; l < links_.size(); ++l)
        if (links_[l].link != nullptr && links_[l].link->kind() == LinkKind::rail && (used >> l & 1) != 0)
            return;
    rails_ = nullptr;
}

/// Makes the connections now: UCX 1.13 aborts the process if a peer dies while one is being made. A chunk of operation
/// 0, which no operation has, goes to each peer on each rail and is acknowledged. In large communicators, where a rank
/// talks to few of its peers, connections are made when they are first used.
Status Communicator::connect_rails() {
    constexpr int64_t kPatienceNs = 2'000'000'000;
    if (rails_ == nullptr || size_ > kConnectedAtOnce)
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
    for (int peer = 0; peer < size_; ++peer) {
        const uint32_t outgoing = peer != rank_ ? outgoing_[members_[peer].host] : 0;
        for (uint32_t mask = outgoing | incoming_[peer]; mask != 0; mask &= mask - 1) {
            const int index = std::countr_zero(mask);
            Link *link = links_[index].link.get();
            if (reaches(index, peer) && link->kind() == LinkKind::rail && link->state(peer) == LinkState::up)
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
    use_huge_pages();
    use_copy_engine();
    Agreed agreed;
    agreed.size = size_;
    agreed.hosts = hosts_;
    agreed.most_ranks_per_host = most_per_host_;
    agreed.fused_bytes = hosts_ == 1 ? config_.size("FLX_FUSED_BYTES") : 0;
    agreed.shared_memory = fused_ != nullptr;
    agreed.peer_memory = fetches();
    agreed.strict = config_.integer("FLX_STRICT") != 0;
    agreed.ways = ways_;
    if (fused_ != nullptr && size_ > 1 && config_.integer("FLX_FROZEN") == 0)
        review_ = std::make_unique<shm::Review>(size_, fetches(), agreed.fused_bytes);
    return Planner::make(rank_, agreed, config_.text("FLX_ALGORITHM"), planner_);
}

}  // namespace flx

/// How a communicator comes to be: ranks meet, share memory and rails, measure what they have, and agree on what to
/// use.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <random>

#include "probe/cpus.h"
#include "probe/network.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/communicator/communicator.h"
#include "runtime/process/introduction.h"
#include "ucx_glue/rail_wiring.h"

namespace flx {

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

}  // namespace

Status Communicator::make(std::shared_ptr<Process> process, std::unique_ptr<Bootstrap> bootstrap, Config config,
                          const Communicator *parent, std::unique_ptr<Communicator> &result, Gpus gpus) {
    auto comm = std::unique_ptr<Communicator>(new Communicator);
    comm->process_ = std::move(process);
    comm->recorded_.recorder = &comm->process_->recorder();  // waits ask for it, also while this is made
    comm->bootstrap_ = std::move(bootstrap);
    comm->knobs_.all = std::move(config);
    comm->knobs_.check = comm->knobs_.all.integer("FLX_CHECK") != 0;
    comm->knobs_.deadline_s = comm->knobs_.all.real("FLX_DEADLINE");
    comm->knobs_.late_warning_s = comm->knobs_.all.real("FLX_LATE_WARNING");
    comm->layout_.rank = comm->bootstrap_->rank();
    comm->layout_.size = comm->bootstrap_->size();
    // Each stage is agreed: a rank that fails tells the others, so that none waits for it. Within a stage nothing that
    // one rank alone may fail in comes before an exchange.
    const auto stage = [&](auto &&body) { return agree_on(*comm->bootstrap_, body); };
    FLX_TRY(stage([&] { return comm->meet(); }));
    FLX_TRY(stage([&] { return comm->make_shared_memory(parent); }));
    FLX_TRY(stage([&] { return comm->make_rails(); }));
    FLX_TRY(stage([&] { return comm->allow_links(); }));
    FLX_TRY(stage([&] { return comm->exchange_links(); }));
    FLX_TRY(stage([&] { return comm->measure(parent); }));
    comm->drop_failed_links();
    FLX_TRY(stage([&] { return comm->exchange_links(); }));
    FLX_TRY(stage([&] { return comm->routes_.choose_own_rail(comm->knobs_.all, comm->lendable()); }));
    FLX_TRY(comm->routes_.exchange_owners(*comm->bootstrap_));
    FLX_TRY(stage([&] { return comm->make_routes(); }));
    if (comm->layout_.size > 1)
        FLX_TRY(comm->routes_.exchange(*comm->bootstrap_));
    FLX_TRY(stage([&] { return comm->make_planner(parent); }));
    // Connecting waits until nothing is under way, so what probing has left goes first.
    FLX_TRY(comm->settle_probing());
    FLX_TRY(stage([&] { return comm->connect_rails(); }));
    FLX_TRY(comm->settle_probing());
    comm->settle_liveness();
    comm->leave_idle_rails();
    comm->queue_.set_over_rails(comm->rails_ != nullptr);
    if (comm->rails_ != nullptr)
        comm->policies_.over_rails();
    if (comm->rails_ == nullptr && comm->layout_.hosts == 1 && comm->channel() != nullptr)
        comm->queue_.allow_eager(comm->id_, *comm->channel());
    comm->devices_.opens = gpus;
    if (gpus != Gpus::never)
        FLX_TRY(comm->open_devices_in_use());
    for (size_t l = 0; l < comm->links_.size(); ++l) {
        const LinkCounters probed = comm->counters(static_cast<int>(l));
        comm->links_[l].bytes_before = probed.bytes;
        comm->links_[l].chunks_before = probed.chunks;
    }
    comm->routes_.forget();
    comm->begin_recording();
    FLX_TRY(comm->compare_clocks());
    result = std::move(comm);
    return {};
}

Status Communicator::meet() {
    probe::HostDevices devices;
    devices.host = process_->network_host();
    FLX_TRY(agree(*bootstrap_, layout_.size > 1 ? probe::network_devices(devices.devices) : Status()));
    const Introduction mine{
        process_->uid(),
        getpid(),
        process_->memory_host(),
        process_->hostname(),
        probe::to_text(devices),
        process_->liveness().address(),
        probe::affinity_mask(),
        fmt::format("{} {}", knobs_.all.values_of(KnobScope::communicator), knobs_.all.values_of(KnobScope::program)),
        process_->remembers()};
    std::vector<std::string> all;
    FLX_TRY(bootstrap_->allgather_text(to_text(mine), all));
    std::vector<std::string> responders(layout_.size);
    FLX_TRY(agree(*bootstrap_, note_members(all, mine, responders)));
    FLX_TRY(meet_responders(responders));
    FLX_TRY(take_id());
    set_log_level(knobs_.all.text("FLX_LOG"));
    name_log(layout_.rank);

    policies_.set(knobs_.all.integer("FLX_SPIN_US"), knobs_.all.integer("FLX_SLEEP_US"), crowded());
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
        if (rank == 0)
            made_.remembers = theirs.remembers;
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

/// FLX_LINKS.
Status Communicator::allow_links() {
    if (layout_.size == 1)
        return {};  // a part of a communicator whose knobs name links that one rank alone does not have
    const std::vector<std::string> names = names_of(links_);
    if (const std::string &links = knobs_.all.text("FLX_LINKS"); !links.empty() && links != "auto") {
        const std::vector<std::string> allowed = split_names(links);
        for (const std::string &name : allowed)
            if (std::find(names.begin(), names.end(), name) == names.end())
                return fail(Fault::unknown_link, "FLX_LINKS names {}; the links are {}", name, join(names));
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
            return fail(Fault::no_link, "no link reaches {} from {}{}", layout_.describe(peer),
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
            links_[l].why_off = status.words();
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
    routes_.share_records(memory_.records, memory_.loads);
    FLX_TRY(routes_.make(knobs_.all, forced));
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
    if (knobs_.all.text("FLX_PROGRESS_THREAD") == "on") {
        entry_.locks = true;
        entry_.thread = ProgressThread::shared();
        entry_.thread->add(*this);
    }
    process_->add(*this);
    return {};
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
    agreed.fused_bytes = layout_.hosts == 1 ? knobs_.all.size("FLX_FUSED_BYTES") : 0;
    agreed.staged_bytes = made_.staged_bytes;
    agreed.strict = knobs_.all.integer("FLX_STRICT") != 0;
    agreed.part = layout_.size < bootstrap_->ranks_of_program() && knobs_.all.origin("FLX_ALGORITHM") != kOwnConfig;
    if (on_host_.ways != nullptr) {
        agreed.shared_memory = true;
        agreed.peer_memory = on_host_.ways->fetches();
        agreed.ways = on_host_.ways->ways();
    }
    return decisions_.make(layout_.rank, agreed, knobs_.all.text("FLX_ALGORITHM"));
}

}  // namespace flx

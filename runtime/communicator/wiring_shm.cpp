/// How a communicator gets its shared memory: the segment, what lies in it, and which way through it serves what.
#include <sched.h>

#include <algorithm>

#include "probe/topology.h"
#include "runtime/base/log.h"
#include "runtime/communicator/communicator.h"
#include "runtime/cuda/memory/host_copies.h"
#include "runtime/plan/staged.h"
#include "runtime/process/outside_waits.h"

namespace flx {

namespace {

/// What a rank may show at once to others of its host, as a stage of an operation between hosts. FLX_SHM_BYTES tells
/// how much memory there is.
size_t staged_payload(size_t budget) {
    constexpr size_t kPart = 8;
    return std::min(kStagedBytes, budget / kPart);
}

}  // namespace

/// What the segment of a host consists of, in this order: the board; where there are several hosts, what this one's
/// ranks know of their rails together; what they do together; channels between pairs.
struct Communicator::SegmentPlan {
    int hosts;
    int ranks;  ///< of this host
    size_t fused_payload;
    size_t budget;  ///< for what they do together, and for channels: half of FLX_SHM_BYTES each, or less
    bool late;      ///< most of it is reserved when it is needed

    static constexpr size_t kLoadsAt = sizeof(Board);
    static constexpr size_t kRecordsAt = kLoadsAt + kMaxLinks * sizeof(RailLoad);

    [[nodiscard]] size_t ledger_at() const {
        return kRecordsAt + static_cast<size_t>(hosts) * kMaxLinks * sizeof(RailRecord);
    }
    [[nodiscard]] size_t ways_at() const { return hosts > 1 ? ledger_at() + Lending::bytes(hosts) : sizeof(Board); }
    [[nodiscard]] size_t channel_at() const {
        return ways_at() + (hosts == 1           ? shm::HostWays::bytes(ranks, fused_payload, budget)
                            : fused_payload != 0 ? shm::Nearby::bytes(ranks, staged_payload(budget))
                                                 : 0);
    }
    [[nodiscard]] shm::ChannelShape channel_shape() const { return shm::ChannelShape::fit(ranks, budget); }
    [[nodiscard]] size_t bytes() const { return channel_at() + channel_shape().bytes(); }

    /// Containers often have a small /dev/shm: then less, down to what still works. The first communicator will be
    /// used, and measures; of further ones nobody knows. Where there is plenty these reserve little at once, though
    /// they may ask for all of it later, as others may that were `promised` theirs. Where there is not, they reserve
    /// all, so that no call finds that there is none, and leave half to those that come after them.
    void fit_into(size_t room, bool further, size_t promised) {
        constexpr size_t kPlenty = 16;
        constexpr size_t kPart = 8;  // other programs need some, too
        late = further && bytes() <= room / kPlenty && promised + bytes() <= room / 2;
        const size_t most = further ? room / 2 : room / kPart * (kPart - 1);
        while (bytes() > most && budget > shm::HostWays::kLeastBudget)
            budget = std::max(budget / 2, shm::HostWays::kLeastBudget);
    }

    /// What each rank has a part of.
    [[nodiscard]] std::vector<shm::Area> areas() const {
        std::vector<shm::Area> areas;
        if (hosts == 1)
            areas = shm::HostWays::areas(ranks, fused_payload, budget, late);
        else if (fused_payload != 0)
            areas = shm::Nearby::areas(ranks, staged_payload(budget), late);
        for (shm::Area &area : areas)
            area.offset += ways_at();
        areas.push_back(channel_shape().area(late));
        areas.back().offset += channel_at();
        return areas;
    }
};

Status Communicator::make_shared_memory(const Communicator *parent) {
    links_.emplace_back();
    links_[0].name = links_[0].identity = "shm";
    if (layout_.most_per_host == 1) {
        links_[0].why_off = "every rank has a host to itself";
        return {};
    }
    if (layout_.here == 1)
        return {};
    if (static_cast<size_t>(layout_.here) > Board::kRanks)
        return fail(Fault::too_many_ranks, "{} ranks of a communicator are on {}; at most {} can be on one host",
                    layout_.here, layout_.members[layout_.rank].hostname, Board::kRanks);
    const size_t wanted = knobs_.all.size("FLX_SHM_BYTES");
    SegmentPlan plan{layout_.hosts, layout_.here, knobs_.all.size("FLX_FUSED_BYTES"), wanted / 2, false};
    plan.fit_into(shm::Segment::room(), process_->has_communicators(), process_->promised_memory());
    struct Agreed {
        size_t budget;
        size_t cache_share;
        bool late;
    };
    const bool first = layout_.members[layout_.rank].local == 0;  // looks for all: the kernel lets one at a time
    const Agreed mine{plan.budget, first && layout_.hosts == 1 ? shared_cache() : 0, plan.late};
    std::vector<Agreed> agreed(layout_.here);
    FLX_TRY(made_.local->allgather(&mine, sizeof mine, agreed.data()));
    plan.budget = agreed[0].budget;
    plan.late = agreed[0].late;
    const Status status = shm::Segment::make(*made_.local, plan.bytes(), memory_.segment, plan.areas());
    if (!status.ok()) {
        log().warn("no shared memory: {}", status.sentence());
        links_[0].why_off = status.words();
        return {};
    }
    if (plan.late)
        memory_.promised = process_->promise_memory(plan.bytes());
    else if (parent == nullptr)
        memory_.segment->map_pages(memory_.segment->base(), plan.bytes());
    if (plan.budget < wanted / 2 && first)
        log().warn(
            "/dev/shm has too little room for FLX_SHM_BYTES={} on each of {} ranks: {} are used, which may be "
            "slower for large vectors (for containers, --shm-size gives more)",
            wanted, layout_.here, 2 * plan.budget);
    use_segment(plan, agreed[0].cache_share);
    return {};
}

/// Everything that lies in the segment, and the link through it.
void Communicator::use_segment(const SegmentPlan &plan, size_t cache_share) {
    std::byte *memory = memory_.segment->base();
    shm::LateMemory *late = plan.late ? memory_.segment.get() : nullptr;
    memory_.board = reinterpret_cast<Board *>(memory);
    OutsideWaits::of_process().add(*memory_.board);
    if (layout_.hosts > 1) {
        memory_.loads = reinterpret_cast<RailLoad *>(memory + SegmentPlan::kLoadsAt);
        memory_.records = reinterpret_cast<RailRecord *>(memory + SegmentPlan::kRecordsAt);
        memory_.ledger = memory + plan.ledger_at();
    }
    if (layout_.hosts == 1)
        on_host_.ways = std::make_unique<shm::HostWays>(layout_, memory_.board, memory + plan.ways_at(),
                                                        plan.fused_payload, plan.budget, cache_share, late);
    std::vector<int> here;
    for (int rank = 0; rank < layout_.size; ++rank)
        if (layout_.near(rank))
            here.push_back(rank);
    if (layout_.hosts > 1 && plan.fused_payload != 0) {
        on_host_.nearby = std::make_unique<shm::Nearby>(memory + plan.ways_at(), std::move(here), layout_.own().local,
                                                        staged_payload(plan.budget));
        made_.staged_bytes = staged_payload(plan.budget);
        if (plan.late)
            on_host_.nearby->fused().reserve_late(late);
    }
    std::vector<int> local_of(layout_.size);
    for (int rank = 0; rank < layout_.size; ++rank)
        local_of[rank] = layout_.members[rank].host == layout_.host ? layout_.members[rank].local : -1;
    links_[0].link = std::make_unique<shm::Channel>(memory + plan.channel_at(), plan.channel_shape(),
                                                    layout_.members[layout_.rank].local, std::move(local_of), late);
}

/// Bytes of the last cache for each rank of this host, if they are spread over all there are; 0: not known.
size_t Communicator::shared_cache() const {
    static const probe::LastCaches caches = [] {  // once a process: that takes ten milliseconds
        probe::LastCaches found;
        if (const Status read = probe::read_last_caches(found); !read.ok())
            log().info("how large the caches are is not known: {}", read.sentence());
        return found;
    }();
    if (caches.bytes == 0)
        return 0;
    return caches.bytes / static_cast<size_t>((layout_.here + caches.count - 1) / caches.count);
}

/// From now on shared memory, if any, is one link among others.
void Communicator::leave_shared_memory() {
    if (channel() != nullptr)
        channel()->fetch_through(nullptr);
    on_host_.ways.reset();
    on_host_.nearby.reset();
    made_.staged_bytes = 0;
}

// Waits for ranks of this host that no link carries anything for.
bool Communicator::arm() {
    if (by_links() || bells() == nullptr)
        return false;
    bells()->arm();
    return true;
}

void Communicator::disarm() {
    bells()->disarm();
}

void Communicator::sleep(int64_t ns) {
    bells()->sleep(ns);
}

/// Unless rank 0's process did that before in the same circumstances.
Status Communicator::try_ways(shm::HostWays &ways) {
    const std::string key =
        fmt::format("ways of {}, {}", ways.circumstances(), knobs_.all.values_of(KnobScope::communicator));
    shm::Ways known;
    bool found = false;
    FLX_TRY(recall(key, known, found));
    if (found) {
        ways.take(known);
        return {};
    }
    wait_.way = Way::fused;  // so that a look during the trial asks whom shared memory waits for
    Waiter waiter(policies_.first(), *this);
    Status status = ways.choose(*bootstrap_, knobs_.all, waiter, found);
    wait_.way = Way::scheduled;
    if (found)
        remember(key, ways.ways());
    return status;
}

/// What decides how an operation is carried out must be equal on all ranks.
Status Communicator::choose_ways(const Communicator *parent) {
    struct Here {
        uint8_t shared;   ///< whether this rank has the shared memory: one of them may have none
        uint8_t crowded;  ///< whether it shares its cores with other ranks
        size_t staged;    ///< what it may show others of its host between hosts
    };
    const Here here{static_cast<uint8_t>(on_host_.ways != nullptr), static_cast<uint8_t>(crowded()),
                    layout_.here > 1 ? made_.staged_bytes : SIZE_MAX};
    std::vector<Here> all(static_cast<size_t>(layout_.size));
    FLX_TRY(bootstrap_->allgather(&here, sizeof here, all.data()));
    if (layout_.hosts == 1 && std::ranges::any_of(all, [](const Here &one) { return one.shared == 0; }))
        leave_shared_memory();
    const size_t least = std::ranges::min(all, {}, &Here::staged).staged;
    made_.staged_bytes = least != SIZE_MAX ? least : 0;
    if (on_host_.ways == nullptr || layout_.size == 1)
        return {};
    shm::HostWays &ways = *on_host_.ways;
    const bool crowds = std::ranges::any_of(all, [](const Here &one) { return one.crowded != 0; });
    FLX_TRY(ways.meet(*bootstrap_, channel(), crowds));
    const shm::HostWays *others = parent != nullptr ? parent->on_host_.ways.get() : nullptr;
    if (others != nullptr && others->fetches() == ways.fetches())
        ways.take(others->ways());
    else
        FLX_TRY(try_ways(ways));
    const bool frozen = knobs_.all.integer("FLX_FROZEN") != 0;
    if (knobs_.all.text("FLX_HUGE_PAGES") == "on")
        ways.use_huge_pages();
    const std::string &engine = knobs_.all.text("FLX_COPY_ENGINE");
    if (engine != "off" && !frozen)
        ways.use_engine([this, opens = engine == "on"](std::string &why) {
            return cuda::host_copies(layout_.own().local, opens, why);
        });
    if (!frozen)
        ways.start_review(knobs_.all.size("FLX_FUSED_BYTES"));
    return {};
}

}  // namespace flx

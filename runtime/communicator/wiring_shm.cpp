/// How a communicator gets its shared memory: the segment, what lies in it, and which way through it serves what.
#include <sched.h>

#include <algorithm>

#include "probe/places.h"
#include "probe/topology.h"
#include "runtime/base/log.h"
#include "runtime/communicator/communicator.h"
#include "runtime/cuda/memory/host_copies.h"
#include "runtime/process/outside_waits.h"
#include "runtime/shm/ways/trial.h"

namespace flx {

Status Communicator::make_shared_memory() {
    links_.emplace_back();
    links_[0].name = links_[0].identity = "shm";
    if (most_per_host_ == 1) {
        links_[0].why_off = "every rank has a host to itself";
        return {};
    }
    if (ranks_here_ == 1)
        return {};
    if (static_cast<size_t>(ranks_here_) > Board::kRanks)
        return fail(FLX_ERR_UNSUPPORTED, "{} ranks of a communicator are on {}; at most {} can be on one host",
                    ranks_here_, members_[rank_].hostname, Board::kRanks);
    // Half for what all ranks of one host do together, half for channels between pairs. Containers often have a small
    // /dev/shm: then less, down to what still works.
    const size_t wanted = config_.size("FLX_SHM_BYTES");
    const size_t fused_payload = hosts_ == 1 ? config_.size("FLX_FUSED_BYTES") : 0;
    const size_t bells_bytes = hosts_ == 1 ? shm::Bells::bytes(size_) : 0;
    const size_t ledger_bytes = hosts_ > 1 ? Lending::bytes(hosts_) : 0;
    const auto fused_with = [&](size_t budget) {
        return hosts_ == 1 ? shm::Fused::bytes(size_, fused_payload, budget) : 0;
    };
    const auto bytes_with = [&](size_t budget) {
        return sizeof(Board) + ledger_bytes + bells_bytes + fused_with(budget) +
               (hosts_ == 1 ? shm::Stream::bytes(size_, budget) : 0) +
               shm::ChannelShape::fit(ranks_here_, budget).bytes();
    };
    constexpr size_t kLeast = 64 << 10;
    constexpr size_t kPart = 8;  // of what is free: other programs and other communicators need some, too
    size_t budget = wanted / 2;
    for (const size_t room = shm::Segment::room() / kPart * (kPart - 1); bytes_with(budget) > room && budget > kLeast;)
        budget = std::max(budget / 2, kLeast);
    struct Agreed {
        size_t budget;
        size_t cache_share;
    };
    const bool first = members_[rank_].local == 0;  // looks for all: the kernel lets one at a time
    const Agreed mine{budget, first && hosts_ == 1 ? shared_cache() : 0};
    std::vector<Agreed> agreed(ranks_here_);
    FLX_TRY(local_->allgather(&mine, sizeof mine, agreed.data()));
    budget = agreed[0].budget;
    cache_share_ = agreed[0].cache_share;
    const auto shape = shm::ChannelShape::fit(ranks_here_, budget);
    const size_t fused_bytes = fused_with(budget);
    const size_t stream_bytes = hosts_ == 1 ? shm::Stream::bytes(size_, budget) : 0;
    const size_t fused_at = sizeof(Board) + ledger_bytes + bells_bytes;
    std::vector<shm::Area> areas;
    const auto add = [&areas](size_t at, shm::Area area) { areas.push_back({at + area.offset, area.stride}); };
    if (hosts_ == 1) {
        for (const shm::Area &area : shm::Fused::areas(size_, fused_payload, budget))
            add(fused_at, area);
        add(fused_at + fused_bytes, shm::Stream::area(size_, budget));
    }
    add(fused_at + fused_bytes + stream_bytes, shape.area());
    const Status status = shm::Segment::make(*local_, bytes_with(budget), segment_, areas);
    if (!status.ok()) {
        log().warn("no shared memory: {}", status.sentence());
        links_[0].why_off = status.sentence();
        return {};
    }
    if (budget < wanted / 2 && members_[rank_].local == 0)
        log().warn(
            "/dev/shm has too little room for FLX_SHM_BYTES={} on each of {} ranks: {} are used, which may be "
            "slower for large vectors (for containers, --shm-size gives more)",
            wanted, ranks_here_, 2 * budget);
    std::byte *memory = segment_->base();
    board_ = reinterpret_cast<Board *>(memory);
    OutsideWaits::of_process().add(*board_);
    memory += sizeof(Board);
    if (ledger_bytes != 0)
        ledger_ = memory;
    memory += ledger_bytes;
    if (hosts_ == 1) {
        bells_ = std::make_unique<shm::Bells>(memory, rank_, size_);
        memory += bells_bytes;
        fused_ = std::make_unique<shm::Fused>(memory, rank_, size_, fused_payload, bells_.get(), budget);
        stream_ = std::make_unique<shm::Stream>(memory + fused_bytes, rank_, size_, budget, bells_.get(), cache_share_);
    }
    memory += fused_bytes + stream_bytes;
    std::vector<int> local_of(size_);
    for (int rank = 0; rank < size_; ++rank)
        local_of[rank] = members_[rank].host == host_ ? members_[rank].local : -1;
    links_[0].link = std::make_unique<shm::Channel>(memory, shape, members_[rank_].local, std::move(local_of));
    return {};
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
    return caches.bytes / static_cast<size_t>((ranks_here_ + caches.count - 1) / caches.count);
}

/// From now on shared memory, if any, is one link among others.
void Communicator::leave_shared_memory() {
    fused_.reset();
    stream_.reset();
    if (channel() != nullptr)
        channel()->fetch_through(nullptr);
    peer_memory_.reset();
}

// Waits for ranks of this host that no link carries anything for.
bool Communicator::arm() {
    if (by_links() || bells_ == nullptr)
        return false;
    bells_->arm();
    return true;
}

void Communicator::disarm() {
    bells_->disarm();
}

void Communicator::sleep(int64_t ns) {
    bells_->sleep(ns);
}

/// What decides how an operation is carried out must be equal on all ranks.
Status Communicator::choose_ways(const Communicator *parent) {
    struct Here {
        uint8_t shared;   ///< whether this rank has the shared memory: one of them may have none
        uint8_t crowded;  ///< whether it shares its cores with other ranks
    };
    const Here here{static_cast<uint8_t>(fused_ != nullptr), static_cast<uint8_t>(crowded())};
    std::vector<Here> all(size_);
    FLX_TRY(bootstrap_->allgather(&here, sizeof here, all.data()));
    if (std::ranges::any_of(all, [](const Here &one) { return one.shared == 0; }))
        leave_shared_memory();
    if (fused_ == nullptr || size_ == 1)
        return {};
    FLX_TRY(find_tree());
    std::vector<int> pids;
    for (const Member &member : members_)
        pids.push_back(member.pid);
    FLX_TRY(shm::PeerMemory::make(*bootstrap_, std::move(pids), peer_memory_, why_no_peer_memory_));
    if (peer_memory_ != nullptr) {
        peer_memory_->obey(board_);
        peer_memory_->share_cache(cache_share_);
    }
    if (channel() != nullptr)
        channel()->fetch_through(fetches() ? peer_memory_.get() : nullptr);
    if (!fetches())
        log().info("ranks do not read each other's memory, data goes through shared memory: {}", why_not_by_kernel());
    if (!why_not_mapped().empty())
        log().info("ranks do not map memory of flx_malloc, it is like any other: {}", why_not_mapped());
    const bool crowded = std::ranges::any_of(all, [](const Here &one) { return one.crowded != 0; });
    ways_ = shm::Ways(fetches(), crowded);
    if (parent != nullptr && parent->fetches() == fetches()) {
        ways_ = parent->ways_;
        if (size_ < shm::TwoSteps::kLeastRanks)
            ways_.two_steps = {};
        fused_->set_two_steps(ways_.two_steps);
        return {};
    }
    // A part of the time for measuring links, which all of this host's are done with by now.
    constexpr int64_t kBudgetNs = 250'000;  // per millisecond of it; many ranks take longer for everything
    constexpr int kRanks = 8;
    constexpr int kMost = 4;
    const int64_t budget_ns = config_.integer("FLX_PROBE_MS") * kBudgetNs * std::clamp(size_ / kRanks, 1, kMost);
    if (budget_ns == 0)
        return {};
    way_ = Way::fused;  // which is asked whom it waits for
    Waiter waiter(wait_policy_, *this);
    size_t tried = 0;
    Status status = shm::try_ways(*bootstrap_, *fused_, *stream_, fetches() ? peer_memory_.get() : nullptr, waiter,
                                  budget_ns, ways_, tried);
    way_ = Way::scheduled;
    if (rank_ == 0)
        log().info("ways through shared memory were tried up to {} bytes", tried);
    return status;
}

/// Where ranks are to each other, if each is bound somewhere. The first one looks for all: the kernel lets one at a
/// time.
Status Communicator::find_tree() {
    if (size_ < shm::TwoSteps::kLeastRanks)
        return {};
    cpu_set_t mine;
    CPU_ZERO(&mine);
    sched_getaffinity(0, sizeof mine, &mine);
    std::vector<cpu_set_t> units(size_);
    FLX_TRY(bootstrap_->allgather(&mine, sizeof mine, units.data()));
    const bool apart =
        std::ranges::any_of(units, [&](const cpu_set_t &one) { return CPU_EQUAL(&one, &units[0]) == 0; });
    if (!apart || !std::ranges::all_of(units, probe::is_bound))
        return {};
    std::vector<probe::Place> places(size_);
    if (rank_ == 0) {
        const Status read = probe::read_places(units, places);
        if (!read.ok()) {
            log().info("which ranks are near each other is not known: {}", read.sentence());
            places.assign(size_, {});
        }
    }
    std::vector<probe::Place> all(places.size() * places.size());
    FLX_TRY(bootstrap_->allgather(places.data(), places.size() * sizeof places[0], all.data()));
    fused_->set_tree(shm::Tree(std::span(all).first(places.size())));
    return {};
}

/// Whether it pays is found out in the program's calls.
void Communicator::use_copy_engine() {
    const std::string &mode = config_.text("FLX_COPY_ENGINE");
    if (peer_memory_ == nullptr || !peer_memory_->maps() || mode == "off" || config_.integer("FLX_FROZEN") != 0)
        return;
    peer_memory_->use_engine([this, opens = mode == "on"](std::string &why) {
        return cuda::host_copies(members_[rank_].local, opens, why);
    });
}

/// Not before the ways were tried: what that takes is memory of the moment.
void Communicator::use_huge_pages() {
    if (peer_memory_ == nullptr || config_.text("FLX_HUGE_PAGES") != "on")
        return;
    std::string why;
    const size_t bytes = shm::HugePages::page_bytes(why);
    if (bytes == 0)
        log().info("buffers do not move to huge pages: {}", why);
    peer_memory_->use_huge_pages(bytes);
}

}  // namespace flx

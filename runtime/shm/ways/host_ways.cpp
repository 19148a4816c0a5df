#include "runtime/shm/ways/host_ways.h"

#include <sched.h>

#include <algorithm>
#include <limits>
#include <span>

#include "probe/places.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/elements/dtype.h"
#include "runtime/shm/ways/trial.h"

namespace flx::shm {

using algorithms::Collective;

size_t HostWays::bytes(int ranks, size_t payload, size_t budget) {
    return Bells::bytes(ranks) + Fused::bytes(ranks, payload, budget) + Stream::bytes(ranks, budget);
}

std::vector<Area> HostWays::areas(int ranks, size_t payload, size_t budget, bool late) {
    const size_t fused_at = Bells::bytes(ranks);
    std::vector<Area> areas = Fused::areas(ranks, payload, budget, late);
    for (Area &area : areas)
        area.offset += fused_at;
    Area stream = Stream::area(ranks, budget, late);
    stream.offset += fused_at + Fused::bytes(ranks, payload, budget);
    areas.push_back(stream);
    return areas;
}

HostWays::HostWays(const Layout &layout, Board *board, std::byte *memory, size_t payload, size_t budget,
                   size_t cache_share, LateMemory *late)
    : layout_(layout),
      board_(board),
      cache_share_(cache_share),
      bells_(memory, layout.rank, layout.size),
      memory_(memory + Bells::bytes(layout.size)),
      budget_(budget),
      late_(late),
      fused_(memory_, layout.rank, layout.size, payload, &bells_, budget),
      stream_(memory_ + Fused::bytes(layout.size, payload, budget), layout.rank, layout.size, budget, &bells_,
              cache_share),
      stream_late_(late != nullptr) {
    if (late != nullptr)
        fused_.reserve_late(late);
}

/// Once. Where there is little room, a shorter ring than was planned.
Status HostWays::reserve_stream(Waiter &waiter) {
    streams_ = false;
    if (!stream_late_ || !why_no_stream_.ok())
        return {};
    const Area area = Stream::area(layout_.size, budget_);
    std::byte *own = memory_ + Fused::bytes(layout_.size, fused_.payload_bytes(), budget_) + area.offset +
                     layout_.rank * area.stride;
    size_t budget = budget_;
    const auto half = [&]() -> size_t {
        budget /= 2;
        return budget < kLeastBudget ? 0 : Stream::area(layout_.size, budget).stride;
    };
    FLX_TRY(fused_.reserve_what_fits(own, area.stride, half, why_no_stream_, waiter));
    stream_late_ = !why_no_stream_.ok();
    if (stream_late_ && layout_.rank == 0)
        log().warn("links carry what is large in this communicator: {}", why_no_stream_.words());
    else if (!stream_late_ && budget != budget_)
        stream_.shorten(budget);
    return {};
}

/// Before ways are compared. Pages that are touched for the first time would count as the way's own time.
Status HostWays::reserve_all(Waiter &waiter, bool &all) {
    all = true;
    if (late_ == nullptr)
        return {};
    Status fused = fused_.reserve_for(fused_.payload_bytes(), waiter);
    if (fused.ok())
        FLX_TRY(reserve_stream(waiter));
    else if (!fused_.lacked_room())
        return fused;
    all = fused.ok() && !stream_late_;
    if (all && !fused_.shortened() && !stream_.shortened())
        late_->map_pages(memory_, Fused::bytes(layout_.size, fused_.payload_bytes(), budget_) +
                                      Stream::bytes(layout_.size, budget_));
    return {};
}

Status HostWays::meet(Bootstrap &bootstrap, Channel *channel, bool crowded) {
    FLX_TRY(find_tree(bootstrap));
    std::vector<int> pids;
    for (const Member &member : layout_.members)
        pids.push_back(member.pid);
    FLX_TRY(PeerMemory::make(bootstrap, std::move(pids), peers_, why_not_));
    if (peers_ != nullptr) {
        peers_->obey(board_);
        peers_->share_cache(cache_share_);
    }
    if (channel != nullptr)
        channel->fetch_through(fetches() ? peers_.get() : nullptr);
    if (!fetches())
        log().info("ranks do not read each other's memory, data goes through shared memory: {}", why_not_by_kernel());
    if (!why_not_mapped().empty())
        log().info("ranks do not map memory of flx_malloc, it is like any other: {}", why_not_mapped());
    crowded_ = crowded;
    ways_ = Ways(fetches(), crowded);
    return {};
}

std::string HostWays::circumstances() const {
    const Tree &tree = fused_.tree();
    return fmt::format("{} ranks{}{}, {} hops, {} nests", layout_.size, fetches() ? " that fetch" : "",
                       crowded_ ? " in turns" : "", tree.hops(), tree.nests().size());
}

void HostWays::take(const Ways &ways) {
    ways_ = ways;
    if (layout_.size < TwoSteps::kLeastRanks)
        ways_.two_steps = {};
    fused_.set_two_steps(ways_.two_steps);
}

Status HostWays::choose(Bootstrap &bootstrap, const Config &config, Waiter &waiter, bool &tried) {
    tried = false;
    // A part of the time for measuring links, which all of this host's are done with by now.
    constexpr int64_t kBudgetNs = 250'000;  // per millisecond of it; many ranks take longer for everything
    constexpr int kRanks = 8;
    constexpr int kMost = 4;
    const int64_t budget_ns = config.integer("FLX_PROBE_MS") * kBudgetNs * std::clamp(layout_.size / kRanks, 1, kMost);
    if (budget_ns == 0)
        return {};
    bool all = false;
    FLX_TRY(agree(bootstrap, told(*board_, [&] { return reserve_all(waiter, all); })));
    if (!all)
        return {};
    streams_ = false;
    size_t largest = 0;
    FLX_TRY(try_ways(bootstrap, *board_, fused_, stream_, fetches() ? peers_.get() : nullptr, waiter, budget_ns, ways_,
                     largest));
    if (layout_.rank == 0)
        log().info("ways through shared memory were tried up to {} bytes", largest);
    tried = true;
    return {};
}

/// Finds out how ranks lie to each other, if each is bound somewhere. Rank 0 looks for all, as the kernel lets only one
/// at a time.
Status HostWays::find_tree(Bootstrap &bootstrap) {
    if (layout_.size < TwoSteps::kLeastRanks)
        return {};
    cpu_set_t mine;
    CPU_ZERO(&mine);
    sched_getaffinity(0, sizeof mine, &mine);
    std::vector<cpu_set_t> units(static_cast<size_t>(layout_.size));
    FLX_TRY(bootstrap.allgather(&mine, sizeof mine, units.data()));
    const bool apart =
        std::ranges::any_of(units, [&](const cpu_set_t &one) { return CPU_EQUAL(&one, &units[0]) == 0; });
    if (!apart || !std::ranges::all_of(units, probe::is_bound))
        return {};
    std::vector<probe::Place> places(units.size());
    if (layout_.rank == 0) {
        const Status read = probe::read_places(units, places);
        if (!read.ok()) {
            log().info("which ranks are near each other is not known: {}", read.sentence());
            places.assign(units.size(), {});
        }
    }
    std::vector<probe::Place> all(places.size() * places.size());
    FLX_TRY(bootstrap.allgather(places.data(), places.size() * sizeof places[0], all.data()));
    fused_.set_tree(Tree(std::span(all).first(places.size())));
    return {};
}

void HostWays::start_review(size_t fused_bytes) {
    review_ = std::make_unique<Review>(layout_.size, fetches(), fused_bytes);
}

/// Not before the ways were tried: what that takes is memory of the moment.
void HostWays::use_huge_pages() {
    if (peers_ == nullptr)
        return;
    std::string why;
    const size_t bytes = HugePages::page_bytes(why);
    if (bytes == 0)
        log().info("buffers do not move to huge pages: {}", why);
    peers_->use_huge_pages(bytes);
}

/// Whether it pays is found out in the program's calls.
void HostWays::use_engine(EngineReach::Source source) {
    if (maps())
        peers_->use_engine(std::move(source));
}

std::optional<Review::Look> HostWays::look(const Operation &operation) {
    // Nothing is reserved for a look alone, and a way that might have no room is not compared.
    if (review_ == nullptr || stream_late_ || !fused_.all_reserved())
        return std::nullopt;
    return review_->next(operation.collective, operation.bytes(), ways_);
}

/// Whether ranks ask each other first if what is to be streamed lies in memory that they have mapped.
bool HostWays::may_be_mapped(const Operation &operation) {
    constexpr size_t kLeast = size_t{64} << 10;  // of which asking is a small part
    return peers_ != nullptr && operation.bytes() >= kLeast && peers_->may_map();
}

Status HostWays::run(const Call &call, flx::Way way, Waiter &waiter, bool &served) {
    const Operation &operation = call.operation;
    served = true;
    streams_ = false;
    if (way == flx::Way::fused) {
        // Where there is no room for such an input, which all ranks find out before anything is done.
        Status status = fused_.run(call, waiter);
        served = status.ok() || !fused_.lacked_room();
        return served ? status : Status();
    }
    const bool by_kernel = way == flx::Way::fetched;
    if (by_kernel || may_be_mapped(operation)) {
        FLX_TRY(peers_->run(call, fused_, waiter, served, by_kernel));
        if (served || !Stream::serves(operation.collective))
            return {};
        served = true;
    }
    if (stream_late_) {
        FLX_TRY(reserve_stream(waiter));
        served = !stream_late_;
        if (!served)
            return {};
    }
    streams_ = true;
    return stream_.run(call, waiter);
}

Status HostWays::run_timed(const Call &call, flx::Way way, const Review::Look &look, Waiter &waiter, bool &served,
                           bool &changed) {
    // Not the call's: a rank that takes these steps for the call, or the other way round, is to find a mismatch.
    const uint32_t signature = ~call.operation.signature;
    const auto barrier = [&]() -> Status {
        streams_ = false;
        return fused_.barrier(signature, waiter);
    };
    if (look.begins)
        FLX_TRY(barrier());
    const int64_t began = now_ns();
    FLX_TRY(run(call, way, waiter, served));
    if (look.ends)
        FLX_TRY(barrier());
    if (!review_->took(now_ns() - began))
        return {};
    streams_ = false;
    const std::span all = review_->all();
    FLX_TRY(fused_.allgather(&review_->times(), all.data(), sizeof all[0], signature, waiter));
    changed = review_->judge(ways_);
    return {};
}

std::vector<Decision> HostWays::explain() const {
    std::vector<Decision> decisions;
    if (review_ != nullptr)
        decisions = review_->explain(ways_);
    if (peers_ != nullptr)
        for (Decision &decision : peers_->explain())
            decisions.push_back(std::move(decision));
    return decisions;
}

}  // namespace flx::shm

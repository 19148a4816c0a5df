// The share of large operations that goes through host memory beside NVLink: how much, when, and what it takes.
#include <algorithm>

#include "runtime/cuda/near/device_group.h"
#include "runtime/shares/partition.h"

namespace flx::cuda {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

uint64_t nanoseconds_between(CUevent_st *begin, CUevent_st *end) {
    float ms = 0;
    if (cudaEventElapsedTime(&ms, begin, end) != cudaSuccess)
        cudaGetLastError();
    return static_cast<uint64_t>(std::max(ms, 0.0F) * 1e6F);
}

/// After its last copy the staged share's lanes must be joined with the caller's stream: it has to be done that much
/// earlier than NVLink's.
constexpr uint64_t kJoinNs = 15'000;

/// Rate and latency from what two sizes took.
LinkEstimate fit(uint64_t small, uint64_t small_ns, uint64_t large, uint64_t large_ns) {
    LinkEstimate estimate;
    if (large_ns == 0)
        return estimate;
    estimate.bytes_per_ns = static_cast<double>(large) / static_cast<double>(large_ns);
    if (large_ns > small_ns) {
        const double rate = static_cast<double>(large - small) / static_cast<double>(large_ns - small_ns);
        const double latency = static_cast<double>(small_ns) - static_cast<double>(small) / rate;
        if (latency >= 0) {
            estimate.bytes_per_ns = rate;
            estimate.latency_ns = latency;
        }
    }
    return estimate;
}

}  // namespace

Status DeviceGroup::open_staged(const Config &config) {
    pinned_wanted_ = config.size("FLX_CUDA_PINNED");
    frozen_ = config.integer("FLX_FROZEN") != 0;
    why_not_staged_ = "no output of whole pages of 2 MiB, 64 MiB or more, was registered yet";
    const std::array<std::string, kGpuLinks> names{kNvlink, kPcie};
    const SplitPartition text = split_partition(config.text("FLX_PARTITION"), names);
    if (!text.named.empty()) {
        PartitionVector vector;
        FLX_TRY(parse_partition(text.named, names, vector));
        forced_ = vector.share(1);
        if (*forced_ == 0)
            why_not_staged_ = "FLX_PARTITION gives it no share";
        else if (pinned_wanted_ == 0)
            return fail(Fault::partition_empty,
                        "FLX_PARTITION gives pcie a share, but FLX_CUDA_PINNED is 0; it must be more, or the share 0");
    }
    if (pinned_wanted_ == 0)
        why_not_staged_ = "FLX_CUDA_PINNED is 0";
    else if (limits_.spare && !forced_)
        why_not_staged_ =
            "FLX_CUDA_BLOCKS is 0, and without kernels the program's own copies could keep a share from its end";
    for (Clock &clock : clocks_)
        for (CUevent_st **event : {&clock.began, &clock.copied, &clock.drained})
            FLX_TRY_CUDA(cudaEventCreate(event));
    return {};
}

/// Collective, when memory was registered: the link is opened with the first that it can serve.
Status DeviceGroup::settle_staged(uint64_t bytes, bool paged) {
    constexpr uint64_t kLeast = 64 * kMiB;
    const bool wanted = forced_ ? *forced_ > 0 : paged && bytes >= kLeast && !limits_.spare;
    if (host_tried_ || pinned_wanted_ == 0 || !wanted)
        return {};
    // CUDA lets pinning wait for all that runs on the GPU, and kernels of this process's other communicators may wait
    // for what some rank calls next. Nor would a share that was measured alone be right beside theirs.
    // Groups that were given up have no kernels that wait.
    const uint8_t others = GroupCount::living(device_) > 1 ? 1 : 0;
    std::vector<uint8_t> all(ranks_);
    FLX_TRY(bootstrap_.allgather(&others, sizeof others, all.data()));
    if (!forced_ && std::find(all.begin(), all.end(), 1) != all.end()) {
        why_not_staged_ = "a process had another communicator with this GPU when memory was registered last";
        return {};
    }
    host_tried_ = true;
    const Status opened = host_.open(bootstrap_, device_, pinned_wanted_, sizeof(ShareTable), limits_.blocks);
    why_not_staged_ = opened.words();
    if (!opened.ok())
        return forced_ ? opened : Status();
    return forced_ ? Status() : measure_staged();
}

Status DeviceGroup::measure_staged() {
    const uint64_t base = (room_.window.slots() + kPage - 1) / kPage * kPage;
    const uint64_t room = room_.window.bytes() > base ? room_.window.bytes() - base : 0;
    if (room < 16 * kMiB * ranks_) {
        why_not_staged_ = fmt::format("there is no room to measure it: FLX_CUDA_STAGING leaves {} bytes", room);
        return {};
    }
    control_.emplace(*static_cast<ShareTable *>(host_.table()), rank_, ranks_, frozen_);
    for (const Collective collective : {Collective::allgather, Collective::alltoall, Collective::bcast}) {
        if (collective == Collective::bcast && ranks_ > 2)  // goes from rank to rank
            continue;
        std::array<LinkEstimate, kGpuLinks> links;
        FLX_TRY(measure_collective(collective, room, links));
        control_->set_estimates(collective, links);
        if (collective == Collective::alltoall && ranks_ == 2)
            control_->set_estimates(Collective::reduce_scatter_block, links);
        if (collective == Collective::allgather) {
            // Beside reductions host memory carries less, as measured.
            constexpr double kBesideReductions = 0.9;
            std::array<LinkEstimate, kGpuLinks> beside = links;
            beside[1].bytes_per_ns *= kBesideReductions;
            beside[1].together_bytes_per_ns *= kBesideReductions;
            control_->set_estimates(Collective::allreduce, beside);
            nvlink_rate_ = links[0].bytes_per_ns * (ranks_ - 1);
            staged_rate_ = links[1].bytes_per_ns * (ranks_ - 1);
        }
    }
    return {};
}

/// A call between windows that is as large as fits into the last `room` bytes of them. An alltoall may overwrite what
/// it sends: only its time counts.
Job DeviceGroup::job_between_windows(Collective collective, uint64_t room) {
    const uint64_t base = room_.window.bytes() - room;
    Job job;
    job.collective = collective;
    job.rank = rank_;
    job.ranks = ranks_;
    job.layout = room_.window;
    job.direct = true;
    job.abort = watcher_.abort_word();
    job.stuck = watcher_.stuck_word();
    job.dead = dead_word();
    job.out = window_ + base;
    job.in = job.out;
    if (collective == Collective::bcast) {
        job.bytes = room / kMiB * kMiB;
        job.part_bytes = job.bytes;
        job.flat = true;
    } else {
        const uint64_t apart = collective == Collective::alltoall ? kMiB : 0;
        job.part_bytes = (room - apart) / ranks_ / kMiB * kMiB;
        job.bytes = job.part_bytes * ranks_;
        job.in += collective == Collective::alltoall ? apart : job.part_offset(rank_);
    }
    for (int rank = 0; rank < ranks_; ++rank) {
        job.windows[rank] = windows_.of(rank);
        job.outputs[rank] = windows_.of(rank) + base;
    }
    return job;
}

/// Both links, between windows. All ranks get the same numbers: those of the slowest.
Status DeviceGroup::measure_collective(Collective collective, uint64_t room,
                                       std::array<LinkEstimate, kGpuLinks> &links) {
    constexpr int kTurns = 3;
    const Job job = job_between_windows(collective, room);
    const uint64_t part = stageable(job).part;
    const uint64_t few = std::min(4 * kMiB, part / 8);
    const uint64_t many = std::min(16 * kMiB, part / 2);
    Job half = job;
    half.part_bytes = part / 2;
    half.bytes = collective == Collective::bcast ? half.part_bytes : half.part_bytes * ranks_;
    std::array<ShareBoard::Times, 4> least{};
    for (int turn = 0; turn < kTurns; ++turn) {
        std::array<ShareBoard::Times, 4> mine{};
        FLX_TRY(time_once(half, 0, mine[0]));
        FLX_TRY(time_once(job, 0, mine[1]));
        FLX_TRY(time_once(job, few, mine[2]));
        FLX_TRY(time_once(job, many, mine[3]));
        std::vector<std::array<ShareBoard::Times, 4>> all(ranks_);
        FLX_TRY(bootstrap_.allgather(mine.data(), sizeof mine, all.data()));
        for (size_t i = 0; i < mine.size(); ++i) {
            ShareBoard::Times slowest{};
            for (const auto &its : all) {
                slowest.nvlink_ns = std::max(slowest.nvlink_ns, its[i].nvlink_ns);
                slowest.pcie_ns = std::max(slowest.pcie_ns, its[i].pcie_ns);
            }
            if (turn == 0 || slowest.nvlink_ns < least[i].nvlink_ns)
                least[i].nvlink_ns = slowest.nvlink_ns;
            if (turn == 0 || slowest.pcie_ns < least[i].pcie_ns)
                least[i].pcie_ns = slowest.pcie_ns;
        }
    }
    links[0] = fit(part / 2, least[0].nvlink_ns, part, least[1].nvlink_ns);
    links[1] = fit(few, least[2].pcie_ns, many, least[3].pcie_ns);
    // A share that is too large costs ten times what one too small does, and in a graph it stays.
    constexpr double kCautious = 0.93;
    links[1].bytes_per_ns *= kCautious;
    // This finds by how much it took longer than it should when both links carried at once. (A slope through it would
    // differ by several per cent from run to run.)
    const double alone_ns = links[0].latency_ns + static_cast<double>(part - few) / links[0].bytes_per_ns;
    const double beside_ns = std::max(static_cast<double>(least[2].nvlink_ns), alone_ns);
    links[0].together_bytes_per_ns = beside_ns > 0 ? links[0].bytes_per_ns * alone_ns / beside_ns : 0;
    links[1].together_bytes_per_ns = links[1].bytes_per_ns;
    return {};
}

Status DeviceGroup::time_once(const Job &job, uint64_t staged_bytes, ShareBoard::Times &times) {
    Operation call;
    call.collective = job.collective;
    const Piece piece = staged_piece(job, staged_bytes);
    Cut cut;
    cut.from = piece.offset;
    cut.bytes = piece.bytes;
    cut.clock = clocks_.data();
    FLX_TRY(run_engines(call, {}, job, cut, stream_));
    FLX_TRY_CUDA(cudaStreamSynchronize(stream_));
    FLX_TRY(watcher_.failure());
    times.nvlink_ns = nanoseconds_between(cut.clock->began, cut.clock->copied);
    times.pcie_ns = cut.bytes == 0 ? 0 : kJoinNs + nanoseconds_between(cut.clock->began, cut.clock->drained);
    return {};
}

Status DeviceGroup::cut_for(const Job &job, const Plan &plan, CUstream_st *stream, Cut &cut) {
    if (!host_.opened() || !may_stage(job, plan.way) || (!forced_ && !control_))
        return {};
    const Stageable size = stageable(job);
    cut.message = size.message;
    double bytes = 0;
    if (forced_) {
        bytes = *forced_ * static_cast<double>(size.sent);
    } else {
        cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
        FLX_TRY_CUDA(cudaStreamIsCapturing(stream, &capture));
        const bool captured = capture != cudaStreamCaptureStatusNone;
        if (!captured)
            FLX_TRY(poll_times());
        cut.turn = control_->next(job.collective, size.message, plan.in_place);
        if (cut.turn.sampled && !captured && clocks_begun_ - clocks_done_ < clocks_.size())
            cut.clock = &clocks_[clocks_begun_++ % clocks_.size()];
        bytes = cut.turn.share * static_cast<double>(size.message);
    }
    const Piece piece = staged_piece(job, static_cast<uint64_t>(bytes));
    cut.from = piece.offset;
    cut.bytes = piece.bytes;
    last_share_ = size.sent == 0 ? 0 : static_cast<double>(cut.bytes) / static_cast<double>(size.sent);
    return {};
}

Status DeviceGroup::begin_staged(const Job &job, const Cut &cut, CUstream_st *stream) {
    if (cut.clock != nullptr)
        FLX_TRY_CUDA(cudaEventRecord(cut.clock->began, stream));
    return cut.bytes == 0 ? Status() : host_.begin(stage(job, cut.from, cut.bytes, host_.pinned()), stream);
}

Status DeviceGroup::end_staged(const Cut &cut, CUstream_st *stream) {
    if (cut.clock != nullptr)
        FLX_TRY_CUDA(cudaEventRecord(cut.clock->copied, stream));
    if (cut.bytes != 0)
        FLX_TRY(host_.finish(stream, cut.clock == nullptr ? nullptr : cut.clock->drained));
    return {};
}

/// Hands the times of finished operations to the controller.
Status DeviceGroup::poll_times() {
    for (; clocks_done_ < clocks_begun_; ++clocks_done_) {
        const Clock &clock = clocks_[clocks_done_ % clocks_.size()];
        const Clock::Timed &call = clock.call;
        for (CUevent_st *event : {clock.copied, call.staged == 0 ? clock.copied : clock.drained}) {
            const cudaError_t state = cudaEventQuery(event);
            if (state == cudaErrorNotReady)
                return {};
            FLX_TRY(check(state, "an earlier operation"));
        }
        const uint64_t pcie_ns = call.staged == 0 ? 0 : kJoinNs + nanoseconds_between(clock.began, clock.drained);
        control_->tell(call.message, call.turn, call.staged, {nanoseconds_between(clock.began, clock.copied), pcie_ns});
    }
    return {};
}

std::vector<GpuLink> DeviceGroup::links() const {
    std::string why = why_not_staged_;
    if (why.empty() && control_) {
        constexpr uint64_t kLarge = 512 * kMiB;
        if (control_->first_share(Collective::allgather, kLarge / ranks_) == 0 && staged_.load() == 0)
            why = "it would add too little to NVLink, as measured";
    }
    return {{kNvlink, "", sent_.load(std::memory_order_relaxed), 1 - last_share_, nvlink_rate_},
            {kPcie, why, staged_.load(std::memory_order_relaxed), last_share_, staged_rate_}};
}

std::vector<std::string> DeviceGroup::staged_report() const {
    if (!host_.opened())
        return {};
    std::string text = fmt::format("through host memory: {:.1f} MiB pinned a GPU{}", host_.pinned() / 1048576.0,
                                   host_.node() < 0 ? "" : fmt::format(", on NUMA node {}", host_.node()));
    if (forced_)
        text += fmt::format("; share {:.3f}, by FLX_PARTITION", *forced_);
    for (const Collective collective : {Collective::allgather, Collective::allreduce, Collective::reduce_scatter_block,
                                        Collective::bcast, Collective::alltoall}) {
        if (!control_ || !control_->knows(collective))
            continue;
        const auto share = [&](uint64_t bytes) {
            Job job;
            job.collective = collective;
            job.bytes = bytes;
            job.part_bytes = bytes / ranks_;
            const Stageable size = stageable(job);
            return control_->first_share(collective, size.message) * static_cast<double>(size.message) /
                   static_cast<double>(size.sent);
        };
        text += fmt::format("; {} {:.3f} of 256 MiB, {:.3f} of 1 GiB", name_of(collective), share(256 * kMiB),
                            share(1024 * kMiB));
    }
    return {text};
}

}  // namespace flx::cuda

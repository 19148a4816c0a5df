#include "runtime/cuda/near/device_group.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "runtime/base/log.h"
#include "runtime/cuda/memory/copy_apart.h"
#include "runtime/cuda/memory/device_memory.h"
#include "runtime/cuda/memory/nvlink.h"
#include "runtime/cuda/protocol/landing.h"
#include "runtime/elements/dtype.h"

namespace flx::cuda {
namespace {

Kernels kernels_for(const Operation &call) {
    return reduces(call.collective) ? kernels_of(call.dtype, call.op) : move_kernels();
}

uint64_t bytes_of(const Operation &call) {
    return call.count * size_of(call.dtype);
}

uint64_t output_bytes(const Operation &call, int ranks) {
    return call.collective == Collective::reduce_scatter_block ? bytes_of(call) / ranks : bytes_of(call);
}

/// Whether what peers write where this rank's output will lie would come over its input.
bool writes_over_input(const Operation &call, int ranks) {
    const char *in = static_cast<const char *>(call.in);
    const char *out = static_cast<const char *>(call.out);
    switch (call.collective) {
        case Collective::reduce_scatter_block:  // what comes in from one peer lands there, and is added in place
            return in < out + output_bytes(call, ranks) && out < in + bytes_of(call);
        case Collective::alltoall:
            return in == out;
        default:
            return false;
    }
}

}  // namespace

Status Group::make(Bootstrap &bootstrap, const Config &config, uint64_t process, Health &health,
                   std::unique_ptr<Group> &result) {
    Status status;
    if (!why_none().empty())
        status = fail(Fault::no_gpu, "no GPU can be used: {}", why_none());
    else if (bootstrap.size() > kMaxRanks)
        status = fail(Fault::too_many_ranks, "collectives on device memory work among up to {} ranks; these are {}",
                      kMaxRanks, bootstrap.size());
    FLX_TRY(agree(bootstrap, std::move(status)));
    auto made = std::make_unique<DeviceGroup>(bootstrap, process, health);
    status = made->make(config);
    if (status.ok())
        result = std::move(made);
    else  // peers may have opened its window, and say later that they write into it no more
        end(std::move(made));
    return status;
}

Status copy_alone(const Operation &call, CUstream_st *stream, bool blocking) {
    const OwnMessage all{static_cast<const char *>(call.in), static_cast<char *>(call.out), bytes_of(call)};
    FLX_TRY(copy_own({&all, 1}, stream));
    return blocking ? await(stream) : Status();
}

Status copy_own(std::span<const OwnMessage> messages, CUstream_st *stream) {
    for (const OwnMessage &message : messages)
        if (message.bytes != 0 && message.from != message.to)
            FLX_TRY_CUDA(cudaMemcpyAsync(message.to, message.from, message.bytes, cudaMemcpyDefault, stream));
    return {};
}

Status await(CUstream_st *stream) {
    return check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

Status DeviceGroup::make(const Config &config) {
    rank_ = bootstrap_.rank();
    ranks_ = bootstrap_.size();
    FLX_TRY(choose_room(config));
    FLX_TRY(agree(bootstrap_, allocate(config)));
    FLX_TRY(agree_on(config));
    if (limits_.spare)
        FLX_TRY(flags_.open(bootstrap_));
    const CurrentDevice current(device_);
    FLX_TRY(farewell_.open(bootstrap_));
    FLX_TRY(SharedMemory::open(bootstrap_, window_, allocation_of_room(room_), device_, process_, true, windows_));
    access_ = std::make_unique<DeviceMemory>(process_, device_);
    shown_.emplace(*access_, rank_, ranks_);
    FLX_TRY(agree(bootstrap_, watcher_.start()));
    return bootstrap_.barrier();
}

/// Collective: whether there is room for a full window and mailbox on all GPUs. The program's others may have it.
Status DeviceGroup::choose_room(const Config &config) {
    limits_.line_bytes = config.size("FLX_CUDA_SMALL");
    limits_.engine_bytes = config.size("FLX_CUDA_ENGINES");
    limits_.blocks = static_cast<uint32_t>(config.integer("FLX_CUDA_BLOCKS"));
    limits_.bulk = ranks_ == 2;  // until load_kernels finds none
    limits_.spare = limits_.blocks == 0;
    if (limits_.spare)
        limits_.blocks = kSpareBlocks;
    const uint64_t budget = config.size("FLX_CUDA_STAGING");
    full_ = room_for(budget, limits_.blocks, ranks_, limits_.spare);
    const Room least = room_for(std::min(config.size("FLX_CUDA_LEAST"), budget), limits_.blocks, ranks_, limits_.spare);
    // A number that no other communicator has.
    std::random_device random;
    const uint64_t mine = uint64_t{random()} << 32 | random();
    std::vector<uint64_t> numbers(ranks_);
    FLX_TRY(bootstrap_.allgather(&mine, sizeof mine, numbers.data()));
    enum class Fit : uint8_t { no, yes, no_device };
    Status device = check(cudaGetDevice(&device_), "cudaGetDevice");
    Fit fit = Fit::no_device;
    if (device.ok()) {
        count_.begin(device_);
        fit = count_.reserve(numbers[0], allocation_of_room(full_), budget) ? Fit::yes : Fit::no;
    }
    std::vector<Fit> all(ranks_);
    FLX_TRY(bootstrap_.allgather(&fit, sizeof fit, all.data()));
    if (std::find(all.begin(), all.end(), Fit::no_device) != all.end())
        return agree(bootstrap_, std::move(device));
    small_ = std::find(all.begin(), all.end(), Fit::no) != all.end();
    room_ = small_ ? least : full_;
    if (small_)
        count_.hold(allocation_of_room(room_));
    return {};
}

Status DeviceGroup::allocate(const Config &config) {
    int multiprocessors = 0;
    FLX_TRY_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device_));
    multiprocessors_ = static_cast<uint32_t>(multiprocessors);
    FLX_TRY(open_staged(config));
    FLX_TRY(take_kept(allocation_of_room(room_), window_));
    FLX_TRY_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    FLX_TRY_CUDA(cudaStreamCreateWithFlags(&side_, cudaStreamNonBlocking));
    FLX_TRY_CUDA(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    FLX_TRY_CUDA(cudaEventCreateWithFlags(&ended_, cudaEventDisableTiming));
    for (size_t i = 0; i < kChunksBack; ++i) {
        cudaEvent_t event = nullptr;
        FLX_TRY_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        reduced_.push_back(event);
    }
    // Flags, counts and lines start at zero; slots need not.
    Status cleared = check(cudaMemsetAsync(window_, 0, room_.window.slots(), stream_), "cudaMemsetAsync");
    if (!cleared.ok())  // as after cudaDeviceReset: nobody is to get it again
        window_ = nullptr;
    FLX_TRY(std::move(cleared));
    FLX_TRY_CUDA(cudaMemsetAsync(window_ + room_.mailbox_offset(), 0, MailboxLayout::kHead, stream_));
    FLX_TRY_CUDA(cudaStreamSynchronize(stream_));
    return load_kernels();
}

/// A kernel that is loaded at its first launch waits for those that run, which may wait for this very rank.
Status DeviceGroup::load_kernels() {
    const auto load = [](const void *kernel) -> Status {
        cudaFuncAttributes attributes{};
        if (kernel != nullptr)
            FLX_TRY_CUDA(cudaFuncGetAttributes(&attributes, kernel));
        return {};
    };
    int shared = 0;
    FLX_TRY_CUDA(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device_));
    const auto load_bulk = [&](const void *kernel) -> Status {
        constexpr int kHopper = 90;
        cudaFuncAttributes attributes{};
        if (kernel == nullptr || !limits_.bulk)
            return {};
        FLX_TRY_CUDA(cudaFuncGetAttributes(&attributes, kernel));
        const uint64_t needed = bulk_launch().shared_bytes + attributes.sharedSizeBytes;
        limits_.bulk = attributes.ptxVersion >= kHopper && attributes.binaryVersion >= kHopper &&
                       needed <= static_cast<uint64_t>(shared);
        if (limits_.bulk)
            FLX_TRY_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                              static_cast<int>(bulk_launch().shared_bytes)));
        return {};
    };
    std::vector<Kernels> all{move_kernels()};
    for (int number = 0; number < kAllDtypes; ++number)
        for (int op = 0; op < kOps; ++op)
            if (const auto dtype = static_cast<flx_dtype_t>(number); has_kernel(dtype, static_cast<flx_op_t>(op)))
                all.push_back(kernels_of(dtype, static_cast<flx_op_t>(op)));
    for (const Kernels &kernels : all) {
        FLX_TRY(load(kernels.exchange));
        FLX_TRY(load(kernels.exchange_anywhere));
        FLX_TRY(load(kernels.packets));
        FLX_TRY(load(kernels.lines));
        FLX_TRY(load(kernels.local));
        FLX_TRY(load_bulk(kernels.bulk));
    }
    FLX_TRY(load(relay_kernel()));
    FLX_TRY(load(chain_kernel()));
    FLX_TRY(load(mail_kernel()));
    FLX_TRY(load(few_mail_kernel()));
    FLX_TRY(load(many_mail_kernel()));
    return load(flag_step_kernel());
}

Status DeviceGroup::agree_on(const Config &config) {
    const std::string mine = config.values_of(KnobScope::gpus);
    std::vector<std::string> all;
    FLX_TRY(bootstrap_.allgather_text(mine, all));
    for (int rank = 0; rank < ranks_; ++rank)
        FLX_TRY(compare_knobs(0, all[0], rank, all[rank]));
    FLX_TRY(agree_on_links());
    if (room_.window.slot_bytes == 0 || room_.window.line_bytes == 0 || room_.window.packet_bytes == 0)
        return fail(Fault::staging_too_small, "FLX_CUDA_STAGING is {} bytes; {} ranks need at least {}",
                    config.size("FLX_CUDA_STAGING"), ranks_, WindowLayout::kHead + room_.window.places() * 2048);
    return {};
}

/// Collective: whether lines arrive whole between all GPUs, and all have bulk copies.
Status DeviceGroup::agree_on_links() {
    constexpr int kBus = 32;
    std::array<char, kBus> mine{};
    Status status = check(cudaDeviceGetPCIBusId(mine.data(), kBus, device_), "cudaDeviceGetPCIBusId");
    if (!status.ok())
        mine = {};
    std::vector<std::array<char, kBus>> all(ranks_);
    FLX_TRY(bootstrap_.allgather(mine.data(), kBus, all.data()));
    if (std::any_of(all.begin(), all.end(), [](const auto &its) { return its[0] == '\0'; }))
        return agree(bootstrap_, std::move(status));
    struct Links {
        Wire worst;
        bool bulk;
    };
    Links links{Wire::nvlink, limits_.bulk};
    for (const std::array<char, kBus> &its : all)
        if (its != mine)
            links.worst = std::max(links.worst, wire_to(device_, mine.data(), its.data()));
    std::vector<Links> answers(ranks_);
    FLX_TRY(bootstrap_.allgather(&links, sizeof links, answers.data()));
    for (const Links &its : answers) {
        links.worst = std::max(links.worst, its.worst);
        links.bulk = links.bulk && its.bulk;
    }
    limits_.bulk = links.bulk;
    const Wire worst = links.worst;
    limits_.lines = worst == Wire::nvlink;
    if (worst == Wire::other)
        why_no_lines_ = "some GPUs reach each other over PCIe, which may not keep lines of 128 bytes together";
    else if (worst == Wire::unknown)
        why_no_lines_ =
            "lines of 128 bytes need NVLink between all GPUs, and neither CUDA nor NVML says whether there is; ranks "
            "that see all GPUs of the host, or NVML, help";
    static std::atomic<bool> said{false};
    if (!limits_.lines && limits_.line_bytes > 0 && rank_ == 0 && !said.exchange(true))
        log().warn("calls of some KiB on GPUs take packets or tiles, which are slower: {}", why_no_lines_);
    return {};
}

/// Nothing waits for more than what this rank has put on streams itself: what else runs on the GPU may wait for this
/// very rank. Nor is the window memory of something else before all peers have said that they write into it no more.
DeviceGroup::~DeviceGroup() {
    if (device_ < 0)
        return;
    const CurrentDevice current(device_);
    retire();
    (void)settle().ok();
    watcher_.stop();
    const bool over = idle() && !stays_for_graphs();
    if (over)
        farewell_.say();
    host_.close();
    flags_.close();
    regions_.clear();
    shown_.reset();
    windows_.close();
    if (over && farewell_.all_said()) {
        return_kept(device_, window_);
        watcher_.free_words();
    }
    if (by_thread_)
        close_kept_of_dead();
    for (cudaStream_t stream : {stream_, side_})
        if (stream != nullptr)
            cudaStreamDestroy(stream);
    reduced_.insert(reduced_.end(), {event_, ended_});
    for (const Clock &clock : clocks_)
        reduced_.insert(reduced_.end(), {clock.began, clock.copied, clock.drained});
    for (cudaEvent_t event : reduced_)
        if (event != nullptr)
            cudaEventDestroy(event);
    cudaGetLastError();
}

void DeviceGroup::retire() {
    abandon();
    watcher_.leave_health();
    count_.end_life();
}

bool DeviceGroup::may_go(bool later) {
    if (device_ < 0)
        return true;
    if (later)
        stay_on(device_);
    by_thread_ = later;
    const CurrentDevice current(device_);
    const OutsideCaptures outside;
    if (!idle() || stays_for_graphs())
        return false;
    farewell_.say();
    const bool opened = host_.opened() || flags_.opened() || !regions_.empty() || (shown_ && shown_->opened());
    if (opened && !later && !alone_)
        return false;
    // Peers' memory that their programs may free is closed first, whether or not all have said that they are done.
    regions_.clear();
    if (shown_)
        shown_->close();
    return farewell_.all_said();
}

/// Asks, without waiting, so that the first answer may be no where one later is yes. An error is a reason for nothing
/// to run any more.
bool DeviceGroup::idle() {
    const OutsideCaptures outside;
    bool works = false;
    for (cudaStream_t stream : {stream_, side_})
        works = works || (stream != nullptr && cudaStreamQuery(stream) == cudaErrorNotReady);
    works = works || (ended_ != nullptr && cudaEventQuery(ended_) == cudaErrorNotReady);
    works = works || (notes_ends_ && !counted_have_ended());
    cudaGetLastError();
    return !works;
}

/// With streams of its own that are empty. The count comes by a copy, which may have to wait for others of the
/// program's: who asks again sees it.
bool DeviceGroup::counted_have_ended() {
    volatile uint32_t *const word = watcher_.spare_word();
    if (window_ == nullptr || word == nullptr || counted_seen_ == counted_blocks_)
        return true;
    if (std::exchange(counted_asked_, false)) {
        counted_seen_ = *word;
        if (counted_seen_ == counted_blocks_)
            return true;
    }
    counted_asked_ = cudaMemcpyAsync(const_cast<uint32_t *>(word), window_ + WindowLayout::kEnded, sizeof *word,
                                     cudaMemcpyDeviceToHost, stream_) == cudaSuccess;
    return !counted_asked_;
}

/// Nothing is noted of a graph's replays. Nobody may wait for a GPU while a stream is captured on it.
Status DeviceGroup::await_replays() const {
    if (!stays_for_graphs() || !notes_ends_)
        return {};
    const cudaError_t state = cudaDeviceSynchronize();
    const bool forbidden = state >= cudaErrorStreamCaptureUnsupported && state <= cudaErrorStreamCaptureWrongThread;
    cudaGetLastError();
    return forbidden ? check(state, "cudaDeviceSynchronize") : Status();
}

Status DeviceGroup::settle() {
    constexpr int kSpins = 1000;
    constexpr useconds_t kNapUs = 50;
    FLX_TRY(await_replays());
    for (int turn = 0; !idle(); ++turn) {
        if (turn < kSpins)
            sched_yield();
        else
            usleep(kNapUs);
    }
    return watcher_.failure();
}

/// After what was put on a stream.
Status DeviceGroup::note_end(CUstream_st *stream, bool in_graph, bool counted) {
    if (in_graph)
        return graphs_.begin(stream);
    if (!notes_ends_ || counted || stream == stream_)
        return {};
    return check(cudaEventRecord(ended_, stream), "cudaEventRecord");
}

void DeviceGroup::close() {
    const CurrentDevice current(device_);
    // Without that it stays for the graphs.
    closed_ = await_replays().ok();
    (void)settle().ok();
    watcher_.stop();
    if (!stays_for_graphs())
        farewell_.say();
    // Closing memory of the program's may wait for the GPU as CUDA does: where there are other groups, a thread does
    // it.
    const uint8_t last = GroupCount::all(device_) <= 1 ? 1 : 0;
    std::vector<uint8_t> all(ranks_);
    if (!bootstrap_.allgather(&last, sizeof last, all.data()).ok())
        return;
    alone_ = std::find(all.begin(), all.end(), 0) == all.end();
    if (!alone_)
        return;
    regions_.clear();
    shown_->close();
    (void)bootstrap_.barrier().ok();  // the destructor frees either way
}

const SharedMemory *DeviceGroup::region_of(const Operation &call) const {
    if (call.collective == Collective::reduce)
        return nullptr;
    for (const SharedMemory &region : regions_)
        if (region.alike() && region.holds(call.out, output_bytes(call, ranks_)))
            return &region;
    return nullptr;
}

/// Where peers' outputs are: shown for this call, or registered. Else nothing.
Status DeviceGroup::outputs_of(const Operation &call, std::span<const Showing> shown,
                               std::optional<PeerOutputs> &outputs) const {
    if (!shown.empty()) {
        outputs = shown_->outputs(shown, static_cast<char *>(call.out));
        return {};
    }
    const SharedMemory *region = region_of(call);
    if (region == nullptr)
        return {};
    if (!region->current())
        return fail(Fault::memory_differs,
                    "the memory at {} was registered, then freed and allocated again; deregister before it is freed",
                    static_cast<const void *>(region->base()));
    outputs.emplace();
    outputs->paged = region->paged();
    // It may be on some ranks alone, which no other knows of. Only in an allreduce does it matter to the others.
    outputs->in_place = call.collective == Collective::allreduce;
    for (int rank = 0; rank < ranks_; ++rank)
        outputs->of[rank] = region->of(rank) + (static_cast<char *>(call.out) - region->base());
    return {};
}

Plan DeviceGroup::plan(const Operation &call, const std::optional<PeerOutputs> &outputs) const {
    const Outputs use =
        outputs ? Outputs{true, outputs->in_place, outputs->paged} : Outputs{false, call.in == call.out, false};
    return plan_of(call.collective, bytes_of(call), ranks_, use, room_.window, limits_);
}

bool DeviceGroup::slows(algorithms::Collective collective, uint64_t bytes, bool shown) const {
    if (!small_ || bytes == 0)
        return false;
    // Whether outputs are inputs each rank knows of itself alone.
    for (const bool in_place : {false, true}) {
        const Outputs use{shown, in_place, true};
        if (!alike(collective, plan_of(collective, bytes, ranks_, use, full_.window, limits_),
                   plan_of(collective, bytes, ranks_, use, room_.window, limits_)))
            return true;
    }
    return false;
}

const char *DeviceGroup::way(const Operation &call) const {
    if (bytes_of(call) == 0)
        return "nothing";
    std::optional<PeerOutputs> outputs;
    (void)outputs_of(call, {}, outputs).ok();
    return name_of(plan(call, outputs).way).data();
}

Job DeviceGroup::job_for(const Operation &call, const Plan &plan, const std::optional<PeerOutputs> &outputs) const {
    Job job;
    job.collective = call.collective;
    job.rank = rank_;
    job.ranks = ranks_;
    job.root = call.root;
    job.divisor = call.op == FLX_AVG && reduces(call.collective) ? ranks_ : 1;
    job.in = static_cast<const char *>(call.in);
    job.out = static_cast<char *>(call.out);
    job.bytes = bytes_of(call);
    job.part_bytes = plan.part_bytes;
    job.tile_bytes = plan.tile_bytes;
    job.blocks = plan.blocks;
    job.layout = room_.window;
    job.direct = outputs.has_value();
    job.flat = plan.flat;
    job.op = call.op;
    for (int rank = 0; rank < ranks_; ++rank) {
        job.windows[rank] = windows_.of(rank);
        if (outputs)
            job.outputs[rank] = outputs->of[rank];
    }
    job.abort = watcher_.abort_word();
    job.stuck = watcher_.stuck_word();
    job.dead = dead_word();
    return job;
}

Status DeviceGroup::launch(const void *kernel, uint32_t blocks, uint32_t threads, const void *argument,
                           CUstream_st *stream, uint32_t shared_bytes) const {
    void *arguments[] = {const_cast<void *>(argument)};
    return check(cudaLaunchKernel(kernel, dim3(blocks), dim3(threads), arguments, shared_bytes, stream),
                 "a kernel's launch");
}

Status DeviceGroup::launch_counted(const void *kernel, const Plan &plan, const Job &job, CUstream_st *stream) {
    FLX_TRY(launch(kernel, plan.blocks, plan.threads, &job, stream));
    counted_blocks_ += job.counted ? plan.blocks : 0;
    return {};
}

Status DeviceGroup::enqueue(const Operation &call, CUstream_st *stream, std::span<const Showing> shown) {
    FLX_TRY(watcher_.failure());
    if (bytes_of(call) == 0)
        return {};
    const CurrentDevice current(device_);
    std::optional<PeerOutputs> outputs;
    FLX_TRY(outputs_of(call, shown, outputs));
    const Plan plan = this->plan(call, outputs);
    // Kernels of few bytes write into their own output alone, once their input is under way.
    const bool written =
        plan.way == Way::engines || (plan.way == Way::tiles && call.collective == Collective::alltoall);
    if (outputs && shown.empty() && written && writes_over_input(call, ranks_)) {
        CopyApart copy(stream);
        FLX_TRY(copy.make(call.in, bytes_of(call)));
        Operation apart = call;
        apart.in = copy.get();
        return put_and_note(apart, plan, stream, outputs);
    }
    return put_and_note(call, plan, stream, outputs);
}

Status DeviceGroup::put_and_note(const Operation &call, const Plan &plan, CUstream_st *stream,
                                 const std::optional<PeerOutputs> &outputs) {
    const bool in_graph = notes_ends_ && captures(stream);
    const bool can_count = plan.way == Way::packets || plan.way == Way::lines || plan.way == Way::relay;
    const bool counted = can_count && notes_ends_ && !in_graph;
    Status status = put(call, plan, stream, outputs, counted);
    // Also of a part, where the rest could not be put there.
    Status noted = note_end(stream, in_graph, counted && status.ok());
    return status.ok() ? std::move(noted) : std::move(status);
}

Status DeviceGroup::put(const Operation &call, const Plan &plan, CUstream_st *stream,
                        const std::optional<PeerOutputs> &outputs, bool counted) {
    Job job = job_for(call, plan, outputs);
    job.counted = counted;
    const bool in_kernel = plan.way == Way::packets || plan.way == Way::lines;
    if (call.collective == Collective::bcast && rank_ == call.root && job.in != job.out && !in_kernel) {
        FLX_TRY_CUDA(cudaMemcpyAsync(job.out, job.in, job.bytes, cudaMemcpyDeviceToDevice, stream));
        job.in = job.out;
    }
    Cut cut;
    FLX_TRY(cut_for(job, plan, stream, cut));
    count(call, plan, cut);
    FLX_TRY(carry_out(call, plan, job, cut, stream));
    if (cut.clock != nullptr)
        cut.clock->call = {cut.message, cut.bytes, cut.turn};
    return {};
}

Status DeviceGroup::carry_out(const Operation &call, const Plan &plan, const Job &job, const Cut &cut,
                              CUstream_st *stream) {
    const Kernels kernels = kernels_for(call);
    switch (plan.way) {
        case Way::packets:
            return launch_counted(kernels.packets, plan, job, stream);
        case Way::lines:
            return launch_counted(kernels.lines, plan, job, stream);
        case Way::relay:
            return launch_counted(relay_kernel(), plan, job, stream);
        case Way::tiles:
            return launch(job.on_lines() ? kernels.exchange : kernels.exchange_anywhere, plan.blocks, plan.threads,
                          &job, stream);
        case Way::bulk:
            return launch(kernels.bulk, plan.blocks, bulk_launch().threads, &job, stream, bulk_launch().shared_bytes);
        case Way::chain:
            return launch(chain_kernel(), plan.blocks, plan.threads, &job, stream);
        case Way::engines:
            return run_engines(call, plan, job, cut, stream);
    }
    return {};
}

Status DeviceGroup::run(const Operation &call) {
    FLX_TRY(enqueue(call, stream_, {}));
    return finish();
}

Status DeviceGroup::finish() {
    constexpr int kSpins = 2000;
    for (int turn = 0;; ++turn) {
        const cudaError_t state = cudaStreamQuery(stream_);
        if (state == cudaSuccess)
            return watcher_.failure();
        if (state != cudaErrorNotReady)
            return check(state, "the collective's kernels");
        if (turn > kSpins) {
            health_.progress();
            sched_yield();
        }
    }
}

void DeviceGroup::count(const Operation &call, const Plan &plan, const Cut &cut) {
    const uint64_t bytes = bytes_of(call);
    const uint64_t peers = ranks_ - 1;
    const bool one_hop = plan.way == Way::packets || plan.way == Way::lines;
    uint64_t sent = 0;
    switch (call.collective) {
        case Collective::allreduce:
            sent = one_hop ? bytes * peers : 2 * (bytes - bytes / ranks_);
            break;
        case Collective::reduce_scatter_block:
        case Collective::allgather:
        case Collective::alltoall:
            sent = bytes - bytes / ranks_;
            break;
        case Collective::bcast:
            if (rank_ == call.root)
                sent = one_hop ? bytes * peers : bytes;
            else if (plan.way == Way::chain || plan.way == Way::engines)
                sent = (rank_ + 1) % ranks_ == call.root ? 0 : bytes;
            else
                sent = one_hop ? 0 : bytes / peers * (peers - 1);
            break;
        case Collective::reduce:
            sent = (one_hop || plan.flat) && rank_ == call.root ? 0 : bytes;
            break;
        default:  // is not served
            break;
    }
    // What is staged reaches every peer.
    const uint64_t staged = call.collective != Collective::bcast || rank_ == call.root ? cut.bytes * peers : 0;
    sent_.fetch_add(sent - std::min(sent, staged), std::memory_order_relaxed);
    staged_.fetch_add(staged, std::memory_order_relaxed);
}

Status DeviceGroup::add_memory(void *memory, size_t bytes) {
    const CurrentDevice current(device_);
    SharedMemory region;
    Status status;
    for (const SharedMemory &known : regions_)
        if (static_cast<char *>(memory) < known.base() + known.bytes() &&
            known.base() < static_cast<char *>(memory) + bytes)
            status = fail(Fault::registration,
                          "memory at {} is registered already; it can be registered again when it was deregistered",
                          static_cast<const void *>(memory));
    FLX_TRY(agree(bootstrap_, std::move(status)));
    FLX_TRY(SharedMemory::open(bootstrap_, static_cast<char *>(memory), bytes, device_, process_, false, region));
    if (!region.alike())
        return fail(
            Fault::memory_differs,
            "ranks registered memory of different sizes, or that lies differently on 16-byte lines; it must be alike");
    regions_.push_back(std::move(region));
    FLX_TRY(settle_staged(regions_.back().bytes(), regions_.back().paged()));
    return bootstrap_.barrier();
}

Status DeviceGroup::remove_memory(void *memory) {
    const CurrentDevice current(device_);
    const auto found = std::find_if(regions_.begin(), regions_.end(),
                                    [&](const SharedMemory &region) { return region.base() == memory; });
    FLX_TRY(agree(
        bootstrap_,
        found != regions_.end()
            ? Status()
            : fail(Fault::registration,
                   "no memory that begins at {} is registered; it is deregistered by the address it was registered by",
                   static_cast<const void *>(memory))));
    // Peers may still write into it.
    FLX_TRY(agree(bootstrap_, settle()));
    regions_.erase(found);
    return bootstrap_.barrier();
}

/// Prepares what registered memory that PCIe can serve needs, since the program's memory may be such.
Status DeviceGroup::expect_shown() {
    const CurrentDevice current(device_);
    FLX_TRY(settle_staged(UINT64_MAX, true));
    return bootstrap_.barrier();
}

void DeviceGroup::show(const Operation &call, bool frozen, Showing &mine) {
    const CurrentDevice current(device_);
    mine = {};
    if (call.collective != Collective::reduce && !writes_over_input(call, ranks_))
        shown_->show(static_cast<char *>(call.out), output_bytes(call, ranks_), frozen, mine);
    mine.in_place = call.in == call.out;
}

Status DeviceGroup::open_shown(std::span<const Showing> all) {
    const CurrentDevice current(device_);
    return shown_->open(all);
}

void DeviceGroup::settle_shown(std::span<const Showing> all, bool opened) {
    const CurrentDevice current(device_);
    shown_->settle(all, opened);
}

void DeviceGroup::close_shown() {
    const CurrentDevice current(device_);
    shown_->close();
}

std::vector<std::string> DeviceGroup::report() const {
    cudaDeviceProp properties{};
    cudaGetDeviceProperties(&properties, device_);
    std::vector<std::string> lines{
        fmt::format("device {}: {}, {} multiprocessors", device_, properties.name, properties.multiProcessorCount),
        fmt::format("window of {:.1f} MiB and mailbox of {:.1f} MiB for peers to write into{}; {} regions registered",
                    room_.window.bytes() / 1048576.0, room_.mailbox.bytes() / 1048576.0,
                    small_ ? " (small, as other communicators of the process have the rest of FLX_CUDA_STAGING)" : "",
                    regions_.size()),
        fmt::format(
            "{} up to {} B to all peers, tiles above ({} blocks at most{}), copy engines from {} "
            "(registered outputs whose allocations are whole pages of 2 MiB)",
            limits_.lines ? "packets and lines" : fmt::format("packets ({})", why_no_lines_),
            limits_.line_bytes * (ranks_ == 2 ? kLinesOfTwo : 1), limits_.blocks,
            bulk_serves(Collective::allreduce, ranks_, room_.window, limits_) ? "; reductions by bulk copies" : "",
            limits_.engine_bytes == 0 ? "where they were measured to be faster"
                                      : fmt::format("{} B", limits_.engine_bytes)),
        limits_.spare
            ? fmt::format(
                  "multiprocessors are spared: none where nothing is added (copy engines, and streams that wait "
                  "by themselves), {} at most for additions, and for messages",
                  limits_.blocks)
            : fmt::format(
                  "multiprocessors: packets and lines up to {}, tiles, a bcast from rank to rank and messages up "
                  "to {}; copy engines one now and then, {} for additions",
                  kMaxBlocks, limits_.blocks, kReducingProcessors)};
    for (const GpuLink &link : links()) {
        std::string text = fmt::format("{:<12} {:<4}", link.name, link.why_off.empty() ? "on" : "off");
        if (link.bytes_per_ns > 0)
            text += fmt::format("  {:.1f} GB/s", link.bytes_per_ns);
        text += fmt::format("  {} bytes sent{}{}", link.bytes_sent, link.why_off.empty() ? "" : "  ", link.why_off);
        lines.push_back(std::move(text));
    }
    for (std::string &text : staged_report())
        lines.push_back(std::move(text));
    return lines;
}

}  // namespace flx::cuda

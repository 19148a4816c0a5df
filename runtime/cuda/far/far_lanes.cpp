#include "runtime/cuda/far/far_lanes.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/own_thread.h"

namespace flx::cuda {
namespace {

constexpr uint64_t kLine = 64;
constexpr uint64_t kMostSlot = 8U << 20;
constexpr uint64_t kMostMessage = 1U << 20;
constexpr uint64_t kLeastMessage = 4U << 10;

uint64_t whole_lines(uint64_t bytes) {
    return (bytes + kLine - 1) / kLine * kLine;
}

uint32_t read(const uint32_t &word) {
    return std::atomic_ref(const_cast<uint32_t &>(word)).load(std::memory_order_acquire);
}

void say(uint32_t &word, uint32_t value) {
    std::atomic_ref(word).store(value, std::memory_order_release);
}

bool reached(uint32_t word, uint32_t value) {
    return static_cast<int32_t>(word - value) >= 0;
}

uint64_t message_slot(uint64_t message_bytes) {
    return whole_lines(message_bytes + FarMessageCut::kTrailer);
}

}  // namespace

FarLayout FarLayout::fit(int ranks, uint64_t budget) {
    FarLayout layout;
    layout.ranks = static_cast<uint32_t>(ranks);
    // A quarter for messages.
    const uint64_t lanes = 2 * static_cast<uint64_t>(ranks);
    const uint64_t words = (1 + lanes) * FarLanes::kSlots * 2 * kLine;
    if (budget < words)
        return layout;
    budget -= words;
    const uint64_t message = budget / 4 / lanes / FarLanes::kSlots / kLine * kLine;
    const uint64_t slot = budget / 4 * 3 / FarLanes::kSlots / kLine * kLine;
    if (message < kLeastMessage + kLine || slot < least_far_slot(ranks))
        return layout;
    layout.message_bytes = std::min(message - kLine, kMostMessage);
    layout.slot_bytes = std::min(slot, kMostSlot);
    return layout;
}

uint64_t FarLayout::bytes() const {
    const uint64_t lanes = 2 * static_cast<uint64_t>(ranks);
    return FarLanes::kSlots * ((1 + lanes) * 2 * kLine + slot_bytes + lanes * message_slot(message_bytes));
}

FarLanes::FarLanes(FarHost &host, int rank, const FarLayout &layout, char *memory, const Tiers &tiers)
    : host_(host),
      rank_(rank),
      ranks_(static_cast<int>(layout.ranks)),
      layout_(layout),
      tiers_(tiers),
      lanes_(1 + 2 * static_cast<size_t>(layout.ranks)) {
    static_assert(sizeof(Words) == 2 * kLine);
    auto *words = reinterpret_cast<Words *>(memory);
    char *slots = memory + lanes_.size() * kSlots * sizeof(Words);
    for (Lane &lane : lanes_) {
        lane.words = words;
        for (uint32_t slot = 0; slot < kSlots; ++slot)
            *words++ = {};
        lane.slots = slots;
        lane.slot_bytes = &lane == lanes_.data() ? layout.slot_bytes : message_slot(layout.message_bytes);
        slots += kSlots * lane.slot_bytes;
    }
    thread_ = own_thread([this] { work(); });
}

void FarLanes::stop() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable())
        thread_.join();
}

Status FarLanes::failure() const {
    if (!failed_.load(std::memory_order_acquire))
        return {};
    const std::lock_guard lock(mutex_);
    return failure_;
}

void FarLanes::give_up(Status why) {
    {
        const std::lock_guard lock(mutex_);
        if (!failed_.load(std::memory_order_relaxed)) {
            failure_ = std::move(why);
            failed_.store(true, std::memory_order_release);
        }
    }
    wake_.notify_all();
}

/// Its last piece was `number` - kSlots; of this call's own the stream knows.
Status FarLanes::free_slot(Lane &lane, uint32_t number, uint32_t first, FarStream &stream) const {
    uint32_t &drained = lane.words[number % kSlots].drained;
    const uint32_t last = number - kSlots;
    if (number - first < kSlots && reached(read(drained), last))
        return {};
    return stream.wait(&drained, last);
}

/// Hands the job to the thread before its stream has any of it: a stream that has no room for all waits for pieces to
/// be carried out.
void FarLanes::hand_over(Lane &lane, const Job &job) {
    unfinished_ += job.pieces;
    {
        const std::lock_guard lock(mutex_);
        lane.jobs.push_back(job);
        lane.has_jobs.store(true, std::memory_order_release);
    }
    wake_.notify_one();
}

/// The job's pieces: `out(piece, slot)` and `in(piece, slot)` put copies on the stream.
template <typename Out, typename In>
Status FarLanes::put(Lane &lane, Job job, FarStream &stream, Out &&out, In &&in) {
    FLX_TRY(failure());
    const uint32_t first = job.first = lane.next.load(std::memory_order_relaxed);
    const uint32_t pieces = job.pieces;
    const bool receives = job.receives;
    lane.next.store(first + pieces, std::memory_order_relaxed);
    hand_over(lane, job);
    constexpr uint32_t kLag = kSlots - 1;
    for (uint32_t turn = 0; turn < pieces + kLag; ++turn) {
        if (turn < pieces) {
            const uint32_t number = first + turn;
            const uint32_t slot = number % kSlots;
            FLX_TRY(free_slot(lane, number, first, stream));
            FLX_TRY(out(turn, lane.slots + slot * lane.slot_bytes));
            FLX_TRY(stream.write(&lane.words[slot].filled, number));
        }
        if (receives && turn >= kLag) {
            const uint32_t piece = turn - kLag;
            const uint32_t number = first + piece;
            const uint32_t slot = number % kSlots;
            FLX_TRY(stream.wait(&lane.words[slot].done, number));
            FLX_TRY(in(piece, lane.slots + slot * lane.slot_bytes));
            FLX_TRY(stream.write(&lane.words[slot].drained, number));
        }
    }
    return stream.end();
}

Status FarLanes::enqueue(const Operation &call, FarStream &stream) {
    Job job;
    job.call = call;
    return put_call(job, stream);
}

Status FarLanes::enqueue_across(const Operation &call, uint64_t apart, FarStream &stream) {
    Job job;
    job.call = call;
    job.is_across = true;
    job.apart = apart;
    return put_call(job, stream);
}

Status FarLanes::compare(uint64_t signature) {
    FLX_TRY(failure());
    Job job;
    job.compares = true;
    job.signature = signature;
    job.pieces = 1;
    hand_over(lanes_[0], job);
    return {};
}

Status FarLanes::put_call(Job job, FarStream &stream) {
    const Operation call = job.call;
    const FarCut cut = this->cut(job);
    const int rank = rank_in(job);
    const int ranks = ranks_in(job);
    job.pieces = cut.pieces();
    job.receives = far_receives(call, rank);
    if (job.pieces == 0)
        return {};
    return put(
        lanes_[0], job, stream,
        [&](uint32_t piece, char *slot) -> Status {
            far_copies(call, cut, rank, ranks, piece, out_, in_);
            for (const FarCopy &copy : out_) {
                bytes_out_ += copy.bytes;
                FLX_TRY(stream.copy_out(slot + copy.at, copy.device, copy.bytes));
            }
            return {};
        },
        [&](uint32_t piece, const char *slot) -> Status {
            far_copies(call, cut, rank, ranks, piece, out_, in_);
            for (const FarCopy &copy : in_)
                FLX_TRY(stream.copy_in(copy.device, slot + copy.at, copy.bytes));
            return {};
        });
}

Status FarLanes::enqueue(const Message &message, FarStream &stream) {
    Job job;
    job.message = message;
    job.is_message = true;
    job.receives = !message.sends;
    const FarMessageCut cut = message_cut(job);
    job.pieces = cut.pieces();
    if (job.pieces == 0)
        return {};
    return put(
        lane_of_messages(lane_of(message)), job, stream,
        [&](uint32_t piece, char *slot) -> Status {
            if (!message.sends)
                return {};
            bytes_out_ += cut.length(piece);
            return stream.copy_out(slot, message.memory + piece * cut.step, cut.length(piece));
        },
        [&](uint32_t piece, const char *slot) -> Status {
            return stream.copy_in(message.memory + piece * cut.step, slot, cut.length(piece));
        });
}

Status FarLanes::begin(Lane &lane, const Job &job, uint32_t piece, Begun &begun) {
    begun.number = job.first + piece;
    begun.receives = job.receives;
    char *slot = lane.slots + begun.number % kSlots * lane.slot_bytes;
    if (!job.is_message) {
        const Operation call = far_call(job.call, cut(job), rank_in(job), ranks_in(job), piece, slot);
        return job.is_across ? host_.begin_across(call, begun.ticket) : host_.begin(call, begun.ticket);
    }
    const FarMessageCut cut = message_cut(job);
    begun.peer = job.message.peer;
    if (cut.has_trailer(piece) && job.message.sends)
        std::memcpy(slot + cut.length(piece), &cut.bytes, FarMessageCut::kTrailer);
    else if (cut.has_trailer(piece))
        begun.expected = cut.bytes;
    return host_.begin(Message{slot, cut.carried(piece), job.message.peer, job.message.sends}, begun.ticket);
}

Status FarLanes::begin_comparing(Lane &lane, const Job &job, Begun &begun) {
    begun.compares = true;
    auto &words = lane.compared[lane.started % kAhead];
    words = {job.signature, ~job.signature};
    return host_.begin(
        Operation{Collective::allreduce, words.data(), words.data(), words.size(), FLX_UINT64, FLX_MAX, 0},
        begun.ticket);
}

Status FarLanes::finish(Lane &lane, const Begun &begun) {
    if (begun.compares) {
        const auto &words = lane.compared[lane.ended % kAhead];
        if (words[0] != ~words[1])
            return fail(Fault::calls_differ,
                        "a rank called another collective on GPU memory, or the same with another count, type, "
                        "reduction or root, as its next on this communicator; all ranks must call alike");
        unfinished_.fetch_sub(1, std::memory_order_release);
        return {};
    }
    Words &words = lane.words[begun.number % kSlots];
    if (begun.expected != 0) {
        uint64_t sent = 0;
        std::memcpy(&sent, lane.slots + begun.number % kSlots * lane.slot_bytes + layout_.message_bytes, sizeof sent);
        if (sent != begun.expected)
            return fail(
                Fault::bytes_differ,
                "rank {} sends {} bytes from its GPU where {} are to be received; both must name the same number",
                begun.peer, sent, begun.expected);
    }
    say(begun.receives ? words.done : words.drained, begun.number);
    unfinished_.fetch_sub(1, std::memory_order_release);
    return {};
}

/// Makes the next job the lane's, if there is one.
bool FarLanes::take_job(Lane &lane) {
    if (!lane.has_jobs.load(std::memory_order_acquire))
        return false;
    const std::lock_guard lock(mutex_);
    lane.job = lane.jobs[lane.taken];
    lane.begun = 0;
    if (++lane.taken == lane.jobs.size()) {
        lane.jobs.clear();
        lane.taken = 0;
        lane.has_jobs.store(false, std::memory_order_relaxed);
    }
    return true;
}

/// What can be begun or ended on a lane.
Status FarLanes::turn(Lane &lane, bool &moved) {
    while (lane.ended != lane.started) {
        const Begun &first = lane.under_way[lane.ended % kAhead];
        bool done = first.ticket == nullptr;
        if (!done)
            FLX_TRY(host_.look(first.ticket, done));
        if (!done)
            break;
        moved = true;
        FLX_TRY(finish(lane, first));
        ++lane.ended;
    }
    while (lane.started - lane.ended < kAhead && (lane.begun != lane.job.pieces || take_job(lane))) {
        const uint32_t number = lane.job.first + lane.begun;
        if (!lane.job.compares && !reached(read(lane.words[number % kSlots].filled), number))
            return {};
        moved = true;
        Begun &begun = lane.under_way[lane.started % kAhead];
        begun = {};
        FLX_TRY(lane.job.compares ? begin_comparing(lane, lane.job, begun) : begin(lane, lane.job, lane.begun, begun));
        ++lane.begun;
        ++lane.started;
    }
    return {};
}

/// Streams that wait are let go, also those that begin to wait later.
void FarLanes::release() {
    constexpr uint32_t kFar = 1U << 30;
    for (Lane &lane : lanes_) {
        const uint32_t number = lane.next.load(std::memory_order_relaxed) + kFar;
        for (uint32_t slot = 0; slot < kSlots; ++slot) {
            say(lane.words[slot].done, number);
            say(lane.words[slot].drained, number);
        }
    }
}

void FarLanes::work() {
    using std::chrono::microseconds;
    constexpr std::chrono::milliseconds kRelease(1);
    constexpr int kYields = 400;
    constexpr microseconds kNap(20);
    constexpr int64_t kWatchNs = 50'000'000;
    pthread_setname_np(pthread_self(), "flx-far");
    int idle = 0;
    int64_t watched_ns = now_ns();
    bool told = false;
    while (!stopping_) {
        if (failed_.load(std::memory_order_acquire)) {
            // All other ranks hear of it before a stream goes on with data of no use, which a peer's GPU might read.
            if (!std::exchange(told, true))
                host_.give_up(failure());
            release();
            std::unique_lock lock(mutex_);
            wake_.wait_for(lock, kRelease, [this] { return stopping_.load(); });
            continue;
        }
        bool moved = false;
        bool under_way = false;
        Status status;
        for (Lane &lane : lanes_) {
            if (status.ok())
                status = turn(lane, moved);
            under_way = under_way || lane.started != lane.ended;
        }
        if (status.ok() && moved) {
            host_.moved();
            idle = 0;
            continue;
        }
        if (status.ok() && under_way)
            status = host_.pause();
        if (const int64_t now = now_ns(); status.ok() && unfinished_ != 0 && now - watched_ns > kWatchNs) {
            watched_ns = now;
            status = host_.watch();
        }
        if (!status.ok()) {
            give_up(std::move(status));
            continue;
        }
        if (under_way)
            continue;
        if (unfinished_ != 0) {  // the GPU has not come so far
            if (++idle < kYields)
                sched_yield();
            else
                std::this_thread::sleep_for(kNap);
            continue;
        }
        idle = 0;
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return stopping_ || failed_ || unfinished_ != 0; });
    }
}

}  // namespace flx::cuda

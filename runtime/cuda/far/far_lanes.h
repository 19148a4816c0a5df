/// \file far_lanes.h
/// Collectives and messages on GPU memory between hosts. A stream copies each piece (far_cut.h) to a slot of pinned
/// host memory and says so in a word there; a thread sees that, has the piece carried out on host memory, and says so
/// in another word; the stream, which waits for that, copies back and says that the slot is free. All that a stream
/// does is put on it by the call, which then returns. The thread makes no CUDA call: whatever the program has CUDA wait
/// for, it goes on.
///
/// A *lane* is a row of slots, used in turn by pieces that are numbered from 1 on: one lane for all collectives, whose
/// pieces all ranks number alike, and two for each peer, for messages to it and from it. A piece's words count pieces:
/// - `filled`, by the stream: the slot is free for this piece and holds what this rank gives;
/// - `done`, by the thread: the slot holds what came;
/// - `drained`: the slot is no longer needed; by the stream, or by the thread where nothing comes to this rank.
/// A stream puts kSlots - 1 pieces into slots before it waits for the first one's result: copies of the next pieces and
/// of the last one go on while the thread carries out one. What is put on it in this order waits for nothing that comes
/// later on it. The next call, maybe on another stream, waits for `drained` of the slot's last piece.
///
/// No CUDA here: streams are seen through FarStream, in tests host threads.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/cuda/far/far_cut.h"
#include "runtime/cuda/far/tiers.h"
#include "runtime/cuda/protocol/mailbox.h"

namespace flx::cuda {

/// What carries out pieces on host memory, among all ranks. Used by one thread.
class FarHost {
  public:
    FarHost() = default;
    FarHost(const FarHost &) = delete;
    FarHost &operator=(const FarHost &) = delete;
    virtual ~FarHost() = default;

    /// Begins a collective's piece. The ticket stands for it until it is done; null: it is done already. Collectives
    /// are carried out in the order of these calls, and so are the messages of a pair.
    virtual Status begin(const Operation &call, void *&ticket) = 0;
    /// The same among the ranks of this rank's place (tiers.h), where there are tiers.
    virtual Status begin_across(const Operation &call, void *&ticket) = 0;
    virtual Status begin(const Message &message, void *&ticket) = 0;
    /// Whether a piece is done. The ticket is used up then, and after an error.
    virtual Status look(void *ticket, bool &done) = 0;
    /// Something moved; nothing did: passes time, and finds out who of those that are waited for is gone.
    virtual void moved() = 0;
    virtual Status pause() = 0;
    /// Called now and then: an error where nothing can come any more for another reason.
    virtual Status watch() = 0;
    /// An error once another rank has let this one know that nothing more comes. Any thread.
    [[nodiscard]] virtual Status told() const = 0;
    /// Lets all ranks know that nothing more comes of what is under way.
    virtual void give_up(const Status &why) = 0;
    /// Collective, when nothing is under way: ends it.
    virtual void close() = 0;
    /// Lines for flx_info.
    [[nodiscard]] virtual std::vector<std::string> report() const = 0;
};

/// A stream, as far as lanes use one. Words are awaited until they are `value` or up to 2^31 more.
class FarStream {
  public:
    FarStream() = default;
    FarStream(const FarStream &) = delete;
    FarStream &operator=(const FarStream &) = delete;
    virtual ~FarStream() = default;
    virtual Status wait(uint32_t *word, uint32_t value) = 0;
    virtual Status write(uint32_t *word, uint32_t value) = 0;
    virtual Status copy_out(char *host, const char *device, uint64_t bytes) = 0;
    virtual Status copy_in(char *device, const char *host, uint64_t bytes) = 0;
    /// Nothing more comes of this call.
    virtual Status end() = 0;
};

/// Sizes, equal on all ranks.
struct FarLayout {
    uint32_t ranks = 0;
    uint64_t slot_bytes = 0;     ///< of the collectives' lane
    uint64_t message_bytes = 0;  ///< of messages' pieces

    /// The layout that takes at most `budget` bytes; slot_bytes is 0 where that is too little.
    static FarLayout fit(int ranks, uint64_t budget);
    [[nodiscard]] uint64_t bytes() const;
};

class FarLanes {
  public:
    static constexpr uint32_t kSlots = 4;
    /// Pieces of a lane that ranks carry out at a time: while one ends the next one is known.
    static constexpr uint32_t kAhead = 2;

    /// `memory`: layout.bytes() of pinned memory, aligned to 128 bytes; it and `host` outlive this. Starts the thread.
    FarLanes(FarHost &host, int rank, const FarLayout &layout, char *memory, const Tiers &tiers = {});
    ~FarLanes() { stop(); }
    FarLanes(const FarLanes &) = delete;
    FarLanes &operator=(const FarLanes &) = delete;

    /// Puts a collective on a stream. One thread at a time, as with all that follows.
    Status enqueue(const Operation &call, FarStream &stream);
    /// The same among the ranks of this rank's place; `apart`: as FarCut.
    Status enqueue_across(const Operation &call, uint64_t apart, FarStream &stream);
    /// Has the thread compare `signature` among all ranks, as soon as it comes to it: a rank that calls something else
    /// would keep the others waiting where nobody looks for that.
    Status compare(uint64_t signature);
    /// A message to or from another rank. Those of one peer and direction go in the order of the calls.
    Status enqueue(const Message &message, FarStream &stream);
    /// Lanes of messages are numbered from 0.
    [[nodiscard]] static uint32_t lane_of(const Message &message) {
        return 2 * static_cast<uint32_t>(message.peer) + (message.sends ? 0 : 1);
    }

    /// Whether pieces are neither done nor given up. Any thread.
    [[nodiscard]] bool busy() const { return !failed_ && unfinished_ != 0; }
    /// Why pieces were given up; success: none was. From then on all streams are let go, and what they find is of no
    /// use. Any thread.
    [[nodiscard]] Status failure() const;
    void give_up(Status why);
    /// Ends the thread. Streams that wait are not let go any more.
    void stop();

    [[nodiscard]] uint64_t bytes_out() const { return bytes_out_; }

  private:
    /// Written by different sides, so on different lines.
    struct alignas(64) Words {
        uint32_t filled = 0;
        uint32_t drained = 0;
        alignas(64) uint32_t done = 0;
    };
    struct Job {
        Operation call;
        Message message;  ///< if `is_message`
        bool is_message = false;
        bool is_across = false;
        bool compares = false;  ///< `signature`, in one piece that has no slot
        bool receives = false;
        uint64_t apart = 0;
        uint64_t signature = 0;
        uint32_t first = 0;  ///< number of its first piece
        uint32_t pieces = 0;
    };
    struct Begun {
        uint32_t number = 0;
        void *ticket = nullptr;
        bool receives = false;
        bool compares = false;
        uint64_t expected = 0;  ///< not 0: the trailer that this piece must bring
        int peer = -1;
    };
    struct Lane {
        Words *words = nullptr;  ///< kSlots
        char *slots = nullptr;
        uint64_t slot_bytes = 0;
        std::atomic<uint32_t> next{1};  ///< number of the next call's first piece
        // Guarded by the mutex.
        std::vector<Job> jobs;
        size_t taken = 0;  ///< of them, by the thread
        std::atomic<bool> has_jobs{false};
        // The thread's.
        Job job;  ///< of which pieces are to be begun, if `begun` is not `job.pieces`
        uint32_t begun = 0;
        std::array<Begun, kAhead> under_way;  ///< a row, from `ended` on
        /// A signature and its complement: with the greatest of all ranks in their place, they belong together only if
        /// all were equal.
        std::array<std::array<uint64_t, 2>, kAhead> compared;
        uint32_t ended = 0;
        uint32_t started = 0;
    };

    Lane &lane_of_messages(uint32_t lane) { return lanes_[1 + lane]; }
    [[nodiscard]] int rank_in(const Job &job) const { return job.is_across ? tiers_.host : rank_; }
    [[nodiscard]] int ranks_in(const Job &job) const { return job.is_across ? tiers_.hosts : ranks_; }
    [[nodiscard]] FarCut cut(const Job &job) const {
        return cut_far(job.call, ranks_in(job), lanes_[0].slot_bytes, job.apart);
    }
    [[nodiscard]] FarMessageCut message_cut(const Job &job) const { return {job.message.bytes, layout_.message_bytes}; }
    template <typename Out, typename In>
    Status put(Lane &lane, Job job, FarStream &stream, Out &&out, In &&in);
    Status free_slot(Lane &lane, uint32_t number, uint32_t first, FarStream &stream) const;
    void work();
    Status turn(Lane &lane, bool &moved);
    bool take_job(Lane &lane);
    Status put_call(Job job, FarStream &stream);
    void hand_over(Lane &lane, const Job &job);
    Status begin(Lane &lane, const Job &job, uint32_t piece, Begun &begun);
    Status begin_comparing(Lane &lane, const Job &job, Begun &begun);
    Status finish(Lane &lane, const Begun &begun);
    void release();

    FarHost &host_;
    const int rank_;
    const int ranks_;
    const FarLayout layout_;
    const Tiers tiers_;
    std::vector<Lane> lanes_;  ///< the collectives', then messages'
    // The copies of a collective's piece, kept to be used again.
    std::vector<FarCopy> out_;
    std::vector<FarCopy> in_;
    std::atomic<uint64_t> bytes_out_{0};

    std::atomic<uint64_t> unfinished_{0};  ///< pieces
    std::atomic<bool> failed_{false};
    mutable std::mutex mutex_;
    std::condition_variable wake_;
    std::atomic<bool> stopping_{false};
    Status failure_;
    std::thread thread_;
};

}  // namespace flx::cuda

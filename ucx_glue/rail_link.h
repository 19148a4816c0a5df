/// \file rail_link.h
/// A communicator's view of a rail.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/link/counted_peers.h"
#include "ucx_glue/line.h"
#include "ucx_glue/pace.h"

namespace flx::ucx {

class RailLink final : public Link {
  public:
    RailLink(std::shared_ptr<Line> line, uint32_t comm_id, const std::vector<int> &processes, double deadline_s);
    ~RailLink() override;

    [[nodiscard]] const std::string &name() const override { return line_->spec().name; }
    [[nodiscard]] LinkKind kind() const override { return LinkKind::rail; }
    [[nodiscard]] bool reaches(int peer) const override;
    /// See rail_wiring.h.
    void part(int peer);
    [[nodiscard]] size_t max_chunk() const override { return line_->options().chunk_bytes; }
    [[nodiscard]] size_t good_chunk(size_t bytes) const override;
    [[nodiscard]] size_t good_chunk_to(int peer, size_t bytes) const override;
    [[nodiscard]] Pace pace(int peer) const override;
    SendResult send(int peer, const ChunkHeader &header, const void *data) override {
        return post(peer, header, data, false);
    }
    SendResult send_soon(int peer, const ChunkHeader &header, const void *data) override {
        return post(peer, header, data, true);
    }
    void flush() override;
    bool receive(int peer, Arrival &arrival) override;
    void release(const Arrival &arrival) override;
    bool completed(Completion &completion) override;
    void ended(int peer, uint64_t sequence) override;
    void tell(int peer, uint16_t links) override;
    [[nodiscard]] uint16_t told(int peer) const override;
    bool progress() override;
    [[nodiscard]] size_t outstanding() const override;
    void share(const SharedLoad &load) override { load_ = load; }
    [[nodiscard]] size_t unacknowledged(int peer) const override;
    [[nodiscard]] LinkCounters counters(int peer) const override;
    bool take_counted(std::vector<int> &peers) override;
    [[nodiscard]] LinkCounters timed() const override;
    [[nodiscard]] LinkState state(int peer) const override;
    [[nodiscard]] Status error(int peer) const override;

    // These are for rails and lines, with the gate held.
    /// Whether a further chunk of so many bytes may be under way to `rank`. Each communicator has a window of its own:
    /// its receiver may be busy with another one and ask for these chunks only when that has ended, which must not have
    /// to wait for room behind them.
    [[nodiscard]] bool has_room(int rank, size_t bytes) const;
    [[nodiscard]] bool has_something_under_way(int rank) const { return sides_[rank].open_chunks != 0; }
    [[nodiscard]] uint32_t comm_id() const { return comm_id_; }
    /// -1 where `peer` is not of this communicator.
    [[nodiscard]] int rank_of(const Peer &peer) const;
    /// Whether chunks of it wait here to be received.
    [[nodiscard]] bool has_more(const Peer &peer) const;
    [[nodiscard]] bool serves(const Target &target) const { return serves(target.process); }
    [[nodiscard]] bool serves(int process) const;
    [[nodiscard]] bool belongs_to(const Line &line) const { return line_.get() == &line; }
    /// Null where the line does not reach the rank.
    [[nodiscard]] const Target *target_of(int rank) const { return sides_[rank].target; }
    /// A chunk that went astray is done, through another process. `collect`: somebody waits for its completion.
    void relayed(const ChunkHeader &header, int rank, bool collect);
    void arrived(Inbound *chunk);
    /// Whether the chunk is of an operation that ended.
    [[nodiscard]] bool ended(const Inbound &chunk) const;
    void started(const Outgoing &chunk);
    /// It has carried the chunk, `now` being when the acknowledgement came.
    void delivered(const Outgoing &chunk, int64_t now);
    /// It had started so much, and will not deliver it.
    void withdrawn(const Outgoing &chunk);
    /// Whether a chunk shall be copied at send.
    [[nodiscard]] bool copies(int rank, const ChunkHeader &header) const {
        const RailOptions &options = line_->options();
        return header.bytes <= options.copy_bytes ||
               (header.bytes <= options.copy_whole_bytes && header.first_cell == 0 && sides_[rank].paced_chunks == 0);
    }
    /// A chunk that was sent here lost its connection; and one is done, wherever.
    void went_astray() { ++astray_; }
    void finished(Outgoing *chunk);
    /// Chunks that were copied are acknowledged when it suits, and say nothing of the rail's pace.
    [[nodiscard]] static bool paced(const Outgoing &chunk) { return chunk.copy == nullptr; }
    /// Everything that the link holds of the rail's, one after another; null when nothing is left.
    Inbound *take_inbound();
    Outgoing *take_finished();

  private:
    SendResult post(int peer, const ChunkHeader &header, const void *data, bool soon);
    void ended(const Outgoing &chunk);
    /// Bytes that may be unacknowledged towards `rank`: a little time's worth of what it delivers there, so that a slow
    /// rail holds little that could go another way.
    [[nodiscard]] size_t window(int rank) const;

    struct Side {
        Target *target = nullptr;  // null: not reached
        List<Inbound> inbox;
        bool ascending = true;  ///< the inbox, by sequence numbers of one kind
        LinkCounters counters;
        int64_t busy_since = 0;
        PaceMeter pace;
        size_t open_bytes = 0;  // unacknowledged
        uint32_t open_chunks = 0;
        size_t paced_bytes = 0;  // of those
        uint32_t paced_chunks = 0;
        uint64_t ended = 0;  // pairwise sequences
    };

    std::shared_ptr<Line> line_;
    SharedLoad load_;
    uint32_t comm_id_;
    int64_t deadline_ns_;
    std::vector<Side> sides_;
    CountedPeers counted_;  // timed chunks
    std::vector<int> rank_of_process_;
    List<Inbound> held_;  // handed over, not released
    Outgoing *finished_first_ = nullptr;
    Outgoing *finished_last_ = nullptr;
    std::vector<Completion> relayed_;  // not collected
    size_t outstanding_ = 0;
    size_t open_bytes_ = 0;  // unacknowledged, to all
    size_t paced_ = 0;       // chunks of those
    LinkCounters total_;     // of timed chunks
    int64_t busy_since_ = 0;
    int64_t polled_ns_ = 0;  // acknowledgements that came by then were seen
    size_t astray_ = 0;      // chunks that have it as their home, and are with other links or none
    uint64_t ended_ = 0;
};

}  // namespace flx::ucx

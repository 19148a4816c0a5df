/// \file rail_link.h
/// A communicator's view of a rail.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pace.h"
#include "rail.h"

namespace flx::ucx {

class RailLink final : public Link {
  public:
    RailLink(std::shared_ptr<Rail> rail, uint32_t comm_id, const std::vector<int> &processes);
    ~RailLink() override;

    [[nodiscard]] const std::string &name() const override { return rail_->spec().name; }
    [[nodiscard]] LinkKind kind() const override { return LinkKind::rail; }
    [[nodiscard]] bool reaches(int peer) const override;
    [[nodiscard]] size_t max_chunk() const override { return rail_->options().chunk_bytes; }
    [[nodiscard]] size_t good_chunk(size_t bytes) const override;
    [[nodiscard]] size_t good_chunk_to(int peer, size_t bytes) const override;
    [[nodiscard]] Pace pace(int peer) const override;
    SendResult send(int peer, const ChunkHeader &header, const void *data) override;
    bool receive(int peer, Arrival &arrival) override;
    void release(const Arrival &arrival) override;
    bool completed(Completion &completion) override;
    bool progress() override;
    [[nodiscard]] size_t outstanding() const override;
    [[nodiscard]] size_t unacknowledged(int peer) const override;
    [[nodiscard]] LinkCounters counters(int peer) const override;
    [[nodiscard]] Status error(int peer) const override;

    // For Rail, with its lock held.
    /// Bytes that may be unacknowledged towards `rank`: a little time's worth of what it delivers there, so that a slow
    /// rail holds little that could go another way.
    [[nodiscard]] size_t window(int rank) const;
    [[nodiscard]] uint32_t comm_id() const { return comm_id_; }
    /// -1 where `peer` is not of this communicator.
    [[nodiscard]] int rank_of(const Peer &peer) const;
    void arrived(Inbound *chunk);
    void started(int rank, size_t bytes);
    void finished(Outgoing *chunk, int64_t now);
    /// Everything that the link holds of the rail's, one after another; null when nothing is left.
    Inbound *take_inbound();
    Outgoing *take_finished();

  private:
    /// Chunks that are copied are acknowledged when it suits, and say nothing of the rail's pace.
    [[nodiscard]] bool paced(size_t bytes) const { return bytes > rail_->options().copy_bytes; }

    struct Side {
        Peer *peer = nullptr;  // null: not reached
        List<Inbound> inbox;
        LinkCounters counters;
        size_t unacknowledged_bytes = 0;
        uint32_t unacknowledged_chunks = 0;
        int64_t busy_since = 0;
        PaceMeter pace;
        size_t paced_bytes = 0;  // of those unacknowledged
        uint32_t paced_chunks = 0;
    };

    std::shared_ptr<Rail> rail_;
    uint32_t comm_id_;
    std::vector<Side> sides_;
    std::vector<int> rank_of_process_;
    List<Inbound> held_;  // handed over, not released
    Outgoing *finished_first_ = nullptr;
    Outgoing *finished_last_ = nullptr;
    size_t outstanding_ = 0;
    int64_t polled_ns_ = 0;  // acknowledgements that came by then were seen
};

}  // namespace flx::ucx

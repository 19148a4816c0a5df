/// \file recording.h
/// A call of the program's, from its beginning to its end, as it is recorded for others to read.
#pragma once

#include "runtime/communicator/communicator.h"

namespace flx {

/// What is waited for meanwhile is waited for by the recorded call `stamp`; 0: by that of before.
class Communicator::RecordedWait {
  public:
    RecordedWait(Communicator &comm, uint64_t stamp) : comm_(comm), outer_(comm.recorded_.call) {
        if (stamp != 0)
            comm_.recorded_.call = stamp;
    }
    ~RecordedWait() {
        comm_.recorded_.call = outer_;
        comm_.end_wait_record();
    }
    RecordedWait(const RecordedWait &) = delete;
    RecordedWait &operator=(const RecordedWait &) = delete;

  private:
    Communicator &comm_;
    uint64_t outer_;
};

class Communicator::Recording {
  public:
    Recording(Communicator &comm, const CallRecord &what, uint64_t number, Way way,
              record::Carrier carrier = record::Carrier::flx)
        : comm_(comm),
          stamp_(comm.recorded_.recorder->enter(comm.recorded_.place, what, number, way, carrier)),
          wait_(comm, stamp_) {}
    /// Messages, or a group of calls, whose first one has that number.
    Recording(Communicator &comm, CallKind kind, size_t bytes, int peer, uint64_t number = 0)
        : Recording(comm, messages(kind, bytes, peer), number, Way::exchanged) {}

    /// Not by end(): an exception.
    ~Recording() {
        if (!ended_) [[unlikely]]
            comm_.recorded_.recorder->leave(stamp_, {});
    }
    Recording(const Recording &) = delete;
    Recording &operator=(const Recording &) = delete;

    Status end(Status status) {
        ended_ = true;
        Recorded &recorded = comm_.recorded_;
        const int64_t now = recorded.recorder->leave(stamp_, status);
        // To sum up what links have carried to all peers takes longer than a short call.
        if (now - recorded.links_ticks >= recorded.links_gap) [[unlikely]] {
            recorded.links_ticks = now;
            comm_.record_links();
        }
        return status;
    }

    static CallRecord messages(CallKind kind, size_t bytes, int peer) {
        CallRecord record;
        record.collective = algorithms::Collective::send_recv;
        record.kind = kind;
        record.bytes = bytes;
        record.root = peer;
        return record;
    }

  private:
    Communicator &comm_;
    const uint64_t stamp_;
    const RecordedWait wait_;
    bool ended_ = false;
};

}  // namespace flx

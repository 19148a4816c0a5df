/// \file job.h
/// A job as tests of the record look at it.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/record/explain.h"
#include "runtime/record/reader.h"

namespace flx::record {

inline constexpr int64_t kNow = 1'000'000'000'000;
inline constexpr int64_t kSecond = 1'000'000'000;
inline constexpr int64_t kPatience = kSecond / 2;

inline CallRecord call_of(uint64_t bytes) {
    CallRecord record;
    record.collective = algorithms::Collective::allreduce;
    record.bytes = bytes;
    record.signature = static_cast<uint32_t>(bytes);
    record.dtype = FLX_F32;
    return record;
}

/// A job of `size` ranks on one communicator, 1, of which each has made nine calls and is in its tenth for two seconds.
struct Job {
    explicit Job(int size, int hosts = 1) {
        for (int rank = 0; rank < size; ++rank) {
            ProcessSeen process;
            process.id = {100 + rank, 1};
            process.pid = 100 + rank;
            process.life = Life::sleeping;
            process.seen_ns = kNow;
            process.hostname = "here";
            process.world_rank = rank;
            process.communicators.push_back(communicator(1, rank, size, hosts));
            processes.push_back(process);
            enter(rank, 10, call_of(8));
        }
    }
    static CommunicatorSeen communicator(uint32_t id, int rank, int size, int hosts = 1) {
        CommunicatorSeen comm;
        comm.id = id;
        comm.first_uid = 7;
        comm.rank = rank;
        comm.size = size;
        comm.hosts = hosts;
        comm.calls = 9;
        comm.last.push_back({9, kNow - 4 * kSecond, kNow - 3 * kSecond, 9, Way::fused, 0, call_of(8)});
        return comm;
    }
    CommunicatorSeen &comm(int rank, size_t which = 0) { return processes[rank].communicators[which]; }
    void enter(int rank, uint32_t number, const CallRecord &what, size_t which = 0) {
        comm(rank, which).last.push_back({number, kNow - 2 * kSecond, 0, number, Way::fused, 0, what});
        comm(rank, which).calls = number;
    }
    /// It is in no call.
    void leave(int rank) {
        comm(rank).last.pop_back();
        comm(rank).calls = 9;
    }
    [[nodiscard]] std::vector<Finding> explain() const { return record::explain(processes, before, kPatience); }

    std::vector<ProcessSeen> processes;
    std::vector<ProcessSeen> before;
};

}  // namespace flx::record

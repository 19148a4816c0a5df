/// \file measure.h
/// Runs a collective of FLX, and MPI's beside it, and times both.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "apps/bench/data.h"
#include "apps/bench/links.h"
#include "apps/flx_perf/report.h"

namespace flx::bench::perf {

/// Times one collective at one size after the other, on buffers that are made once for the largest. Every rank has one
/// and makes the same calls; used by one thread. A call of FLX that fails ends the whole program with its sentence: a
/// figure from a broken communicator would be worth nothing.
class Measurer {
  public:
    /// Collective. All references must outlive this.
    Measurer(const Options &options, flx_comm_t flx_comm, MPI_Comm mpi_comm, LinkCounters &links);

    /// False on all ranks if one of them did not get its buffers.
    [[nodiscard]] bool ready() const { return ready_; }

    /// Collective. All ranks get the same result. `done` is called with the part of the timed
    /// calls that is done, up to 1.
    Result measure(const Shape &shape, const std::function<void(double)> &done);

    /// The timed calls of FLX in the last measure(), complete on rank 0; empty unless a log was asked for.
    [[nodiscard]] const std::vector<LoggedCall> &log() const { return log_; }

  private:
    enum Side { kFlx = 0, kMpi = 1, kMpiAgain = 2, kMemcpy = 3 };
    /// Times of one side. Seconds of a call: first this rank's, after `agree` the slowest rank's.
    struct Times {
        std::vector<double> per_call;
        double total = 0;  ///< seconds
        int64_t calls = 0;
    };
    struct Checked {
        uint64_t wrong = 0;           ///< over all ranks
        std::vector<uint64_t> bytes;  ///< on each link, over all ranks
    };
    struct Free {
        Free() : Free(false) {}
        explicit Free(bool of_flx_malloc) : shared(of_flx_malloc) {}
        bool shared;
        void operator()(std::byte *memory) const {
            if (shared) {
                flx_free(memory);
            } else {
                std::free(memory);
            }
        }
    };
    using Buffer = std::unique_ptr<std::byte, Free>;

    [[nodiscard]] Buffer make_buffer(size_t bytes) const;
    void call(Side side);
    Checked checked_call(Side side);
    double timed_calls(Side side, int64_t count);
    double timed_call(Side side);
    void timed_block(Side side, int64_t count, Times &times);
    void warm_up(Side side);
    double seconds_of_a_call(Side side, double enough_seconds);
    /// By side; empty for those that are not in `sides`.
    std::vector<Times> run_in_turn(const std::vector<Side> &sides, const std::function<void(double)> &done);
    Times run_back_to_back(Side side);
    void merge_log();
    [[nodiscard]] double slowest(double seconds) const;
    [[nodiscard]] uint64_t over_ranks(uint64_t number) const;
    [[nodiscard]] std::vector<uint64_t> over_ranks(std::vector<uint64_t> numbers) const;
    [[noreturn]] void fail(flx_status_t status) const;

    const Options &options_;
    flx_comm_t flx_comm_;
    MPI_Comm mpi_comm_;
    LinkCounters &links_;
    Job job_;
    Pattern pattern_;
    Buffer send_;
    Buffer recv_;
    bool ready_ = false;
    uint64_t call_ = 0;  ///< which turn of the pattern is in the buffers
    double start_ = 0;

    // Of the size that is being measured.
    bool each_alone_ = false;  ///< calls are timed one by one, since something is done before them
    uint64_t wrong_ = 0;       ///< this rank's, in timed calls
    uint64_t peer_wrong_ = 0;
    std::vector<uint64_t> before_;  ///< by link
    std::vector<uint64_t> after_;
    std::vector<uint64_t> carried_;  ///< this rank's, in timed calls
    std::vector<LoggedCall> log_;
};

}  // namespace flx::bench::perf

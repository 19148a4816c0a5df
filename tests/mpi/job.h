/// \file job.h
/// One call of a collective, of any type, reduction and way of calling, with its buffers and what must come out of it.
#pragma once

#include <flx.h>
#include <mpi.h>

#include <cstddef>
#include <memory_resource>
#include <string>
#include <vector>

#include "tests/mpi/elements.h"

namespace flx::test {

enum class Kind {
    barrier,
    allreduce,
    reduce,
    reduce_scatter_block,
    reduce_scatter,
    bcast,
    allgather,
    allgatherv,
    gather,
    gatherv,
    scatter,
    scatterv,
    alltoall,
    alltoallv,
    scan,
    exscan
};
inline constexpr int kKinds = 16;
const char *name_of(Kind kind);
bool kind_reduces(Kind kind);

enum class Manner { blocking, non_blocking, persistent };

/// Alike on all ranks.
struct JobCase {
    Kind kind = Kind::barrier;
    flx_dtype_t dtype = FLX_INT32;
    int op = FLX_SUM;  ///< or kCompose, kScaledSum
    size_t count = 0;  ///< of the vector, or of one rank's block; those of given lengths vary around it
    int root = 0;
    bool in_place = false;
    uint64_t seed = 1;
};
std::string to_string(const JobCase &c);

/// Where jobs have their buffers, from now on in `other` if that is given. The process's own memory at first.
std::pmr::memory_resource &job_memory(std::pmr::memory_resource *other = nullptr);

/// One rank's part. Not moved while it runs.
class Job {
  public:
    Job(const JobCase &c, int rank, int size);
    ~Job();
    Job(const Job &) = delete;
    Job &operator=(const Job &) = delete;

    /// Persistent: makes the request, to be started. Blocking: all of it.
    flx_status_t call(Manner manner, flx_comm_t comm, flx_request_t *request);
    /// The buffers as they were before the call: for persistent requests.
    void refill();
    /// Whether they are so.
    [[nodiscard]] bool as_before() const;
    /// Empty, or what is wrong with the result or with memory beside it.
    [[nodiscard]] std::string verdict() const;

    /// Whether MPI has the type and reduction, and Open MPI 4.1.4 gets them right.
    [[nodiscard]] bool mpi_can() const;
    /// Does the same by MPI, blocking, and says what differs from FLX's result; empty: nothing.
    std::string compare_with_mpi(MPI_Comm comm);

    [[nodiscard]] const JobCase &what() const { return case_; }
    /// Calls of the reduction of the program's own, if the job has one.
    [[nodiscard]] size_t reductions() const { return reductions_; }

  private:
    struct Range {  // of the output, in elements: what is expected there
        size_t at;
        size_t count;
        int rank;      // whose input, or last rank of a reduction; -1: of what is summed, all
        size_t first;  // index in that input
    };
    struct Side {
        std::pmr::vector<std::byte> memory{&job_memory()};
        std::byte *data = nullptr;
        size_t elements = 0;
    };

    void lay_out();
    void make(Side &side, size_t elements) const;
    void put(Side &side, size_t at, size_t count, int rank, size_t first) const;
    [[nodiscard]] Element expected(const Range &range, size_t i) const;

    const JobCase case_;
    const int rank_;
    const int size_;
    const size_t element_;
    bool in_place_ = false;  // on this rank
    bool reduces_ = false;
    Side in_;
    Side out_;
    std::pmr::vector<std::byte> in_before_;
    std::pmr::vector<std::byte> out_before_;
    std::vector<Range> ranges_;
    std::vector<size_t> counts_, displs_, sendcounts_, sdispls_;
    flx_op_t op_ = FLX_SUM;
    bool own_op_ = false;
    size_t reductions_ = 0;
};

}  // namespace flx::test

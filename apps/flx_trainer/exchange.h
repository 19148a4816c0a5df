/// \file exchange.h
/// Adds the ranks' gradients, bucket by bucket, through FLX or through MPI_Allreduce.
#pragma once

#include <flx.h>
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "apps/flx_trainer/buckets.h"

namespace flx::trainer {

enum class Backend { flx, mpi };

/// Deliberate damage to one chunk of one rank's gradients in one step, to show that the checks see it.
struct Corruption {
    enum class When { never, before, after };  ///< before or after the reduction
    When when = When::never;
    int rank = 0;
    std::size_t step = 0;  ///< counted from 0 over the whole run
};

/// Microseconds that one step's exchange took on this rank.
struct ExchangeTime {
    double waiting_us = 0.0;   ///< until every rank had its gradients: the time in a barrier
    double reducing_us = 0.0;  ///< from there until all buckets were reduced
};

/// Reduces gradients in place, a sum over ranks. A failure is printed and ends the program with MPI_Abort, since the
/// other ranks would wait for ever.
class Exchange {
  public:
    /// `flx_comm` is used where `backend` is flx, `mpi_comm` always; both stay the caller's and outlive this.
    Exchange(Backend backend, MPI_Comm mpi_comm, flx_comm_t flx_comm, std::vector<Bucket> buckets);

    /// Collective. `step` says whether `corruption` applies.
    ExchangeTime reduce(std::span<float> gradients, std::size_t step, const Corruption &corruption);

    Backend backend() const { return backend_; }
    std::size_t buckets() const { return buckets_.size(); }

  private:
    Backend backend_;
    MPI_Comm mpi_comm_;
    flx_comm_t flx_comm_;
    int rank_ = 0;
    std::vector<Bucket> buckets_;
};

/// Prints what `call` came to and ends the program where `status` is an error.
void require(flx_status_t status, const char *call);

/// What one link carried: bytes that FLX counted on the sending side.
struct LinkBytes {
    std::string name;
    std::uint64_t bytes = 0;
};

/// This rank's links, in FLX's order.
std::vector<LinkBytes> local_link_bytes(flx_comm_t comm);

/// The links of all ranks of `mpi_comm`, added by name, on every rank. Collective.
std::vector<LinkBytes> total_link_bytes(flx_comm_t comm, MPI_Comm mpi_comm);

}  // namespace flx::trainer

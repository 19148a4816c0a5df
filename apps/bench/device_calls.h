/// \file device_calls.h
/// Calls of FLX, and of NCCL beside it, on a GPU's memory: put on a stream, timed and checked.
#pragma once

#include <memory>
#include <string>

#include "apps/bench/call_options.h"
#include "apps/bench/machine.h"

struct CUstream_st;

namespace flx::bench {

struct DeviceSettings {
    bool registered = true;  ///< outputs are registered with FLX
    bool graph = false;      ///< time() replays graphs that the calls were captured into
    bool nccl = false;       ///< NCCL is wanted, too
};

/// Where a communicator is asked for, this one stands for NCCL's.
inline constexpr flx_comm_t kNccl = nullptr;

/// One rank's, on buffers that are made once for the largest size. Every rank has one and makes the same calls; used by
/// one thread. A call that fails ends the program with its sentence.
class DeviceCalls {
  public:
    /// Collective; null, and why on all ranks, where a rank lacks what it needs. `comm` outlives the result.
    static std::unique_ptr<DeviceCalls> make(const CallOptions &options, const DeviceSettings &settings,
                                             flx_comm_t comm, MPI_Comm mpi_comm, std::string &why);
    DeviceCalls() = default;
    DeviceCalls(const DeviceCalls &) = delete;
    DeviceCalls &operator=(const DeviceCalls &) = delete;
    virtual ~DeviceCalls() = default;

    /// From now on calls have this shape, one of the options' sizes.
    virtual void take(const Shape &shape) = 0;
    [[nodiscard]] virtual const Job &job() const = 0;
    /// Registers outputs with another communicator of the same ranks, if they are to be registered. An empty text, or
    /// what FLX said. The caller frees the communicator before the end of this.
    virtual std::string admit(flx_comm_t comm) = 0;
    /// How FLX carries out the call.
    [[nodiscard]] virtual std::string way(flx_comm_t comm) const = 0;
    /// Whether NCCL was asked for and has the call; where it was and has not, why_no_nccl() says why.
    [[nodiscard]] virtual bool has_nccl() const = 0;
    [[nodiscard]] virtual std::string why_no_nccl() const = 0;

    [[nodiscard]] virtual CUstream_st *stream() const = 0;
    /// Puts one call on the stream.
    virtual void put(flx_comm_t comm) = 0;
    /// Returns when the stream has nothing left to do.
    virtual void wait() = 0;
    /// One call on fresh data; how many elements are wrong, over all ranks. Collective.
    virtual uint64_t checked(flx_comm_t comm) = 0;
    /// Seconds of this rank for so many calls, from a common start; one more goes before. Collective.
    virtual double time(flx_comm_t comm, int64_t count) = 0;
    /// Of one, on the slowest rank, from as many as take `enough` seconds. Collective.
    virtual double seconds_of_one(flx_comm_t comm, double enough) = 0;
    /// Of all ranks, the most. Collective.
    [[nodiscard]] virtual double slowest(double seconds) const = 0;

    /// For headers: GPUs, and NCCL with its settings.
    virtual void describe(Machine &machine) const = 0;
    /// Says what went wrong, and with which call; ends all ranks.
    [[noreturn]] virtual void fail(const std::string &what) const = 0;
    /// fail() for an error of CUDA; zero is none.
    virtual void must(int error) const = 0;
};

/// Makes this rank's GPU, the one of its place among the ranks of its host, the current device. Before a communicator
/// is made. Why not, or an empty text.
std::string take_device(MPI_Comm mpi_comm);

}  // namespace flx::bench

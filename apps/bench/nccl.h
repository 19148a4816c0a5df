/// \file nccl.h
/// NCCL as the program finds it when it runs: loaded then, so that building needs none.
#pragma once

#include <memory>
#include <string>

#include "apps/bench/collectives.h"

struct CUstream_st;

namespace flx::bench {

class Nccl {
  public:
    /// Collective over `mpi_comm`; the current device is the rank's. Null, and why on all ranks, where a rank has none.
    static std::unique_ptr<Nccl> make(MPI_Comm mpi_comm, std::string &why);
    ~Nccl();
    Nccl(const Nccl &) = delete;
    Nccl &operator=(const Nccl &) = delete;

    /// Puts the job's call on the stream. An empty text, or what NCCL said.
    std::string call(const Job &job, CUstream_st *stream);
    /// `NCCL 2.28.9`.
    [[nodiscard]] std::string version() const;
    /// Whether NCCL has the job's type.
    [[nodiscard]] bool serves(const Job &job) const;

  private:
    struct Library;
    Nccl() = default;
    std::unique_ptr<Library> library_;
    void *comm_ = nullptr;
};

}  // namespace flx::bench

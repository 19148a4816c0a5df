/// \file links.h
/// What the links of a communicator counted, by names that all ranks agree on.
#pragma once

#include <flx.h>

#include <cstdint>
#include <string>
#include <vector>

namespace flx::bench {

/// Reads flx_comm_link_stats. Ranks may see different links; the columns here are their union, in the order of the
/// lowest rank that has each. Every rank keeps one; used by one thread.
class LinkCounters {
  public:
    /// Collective over `mpi_comm`, which has the ranks of `comm`; both must outlive this. On an error of FLX the
    /// status is left in `status()`.
    LinkCounters(flx_comm_t comm, MPI_Comm mpi_comm);

    [[nodiscard]] flx_status_t status() const { return status_; }
    [[nodiscard]] const std::vector<std::string> &names() const { return names_; }
    /// Writes the payload bytes that this rank has put on each link so far: names().size() numbers. Local.
    void read(uint64_t *bytes);
    /// What the partition vector gave each link in this rank's last operation, as of the last read(): names().size()
    /// parts of 1.
    [[nodiscard]] std::vector<double> vector() const;

  private:
    flx_comm_t comm_;
    flx_status_t status_ = FLX_SUCCESS;
    std::vector<std::string> names_;
    std::vector<size_t> column_of_;  ///< of this rank's links
    std::vector<flx_link_stats_t> stats_;
};

}  // namespace flx::bench

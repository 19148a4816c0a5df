/// \file links.h
/// What the links of a communicator counted, by names that all ranks agree on.
#pragma once

#include <flx.h>

#include <cstdint>
#include <string>
#include <type_traits>
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

/// What the links of all ranks carried while something ran.
class Carried {
  public:
    /// Both must outlive this.
    Carried(LinkCounters &links, MPI_Comm mpi_comm)
        : links_(links), mpi_comm_(mpi_comm), bytes_(links.names().size()) {}

    /// Runs `function` and adds what this rank's links carried meanwhile; of graphs, what was captured.
    template <typename Function>
    std::invoke_result_t<Function> in(const Function &function) {
        std::vector<uint64_t> before(bytes_.size());
        std::vector<uint64_t> after(bytes_.size());
        links_.read(before.data());
        const auto result = function();
        links_.read(after.data());
        for (size_t i = 0; i < bytes_.size(); ++i)
            bytes_[i] += after[i] - before[i];
        return result;
    }
    /// Each link's part of all ranks' bytes, in the order of names(). Collective.
    [[nodiscard]] std::vector<double> shares() const;

  private:
    LinkCounters &links_;
    MPI_Comm mpi_comm_;
    std::vector<uint64_t> bytes_;
};

}  // namespace flx::bench

/// \file bootstrap.h
/// What FLX needs of whoever started the ranks. MPI is the default; tests run ranks as threads.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"

namespace flx {

/// A group of ranks that can exchange small data while communicators are made and freed. Collective calls, one thread.
class Bootstrap {
  public:
    Bootstrap() = default;
    Bootstrap(const Bootstrap &) = delete;
    Bootstrap &operator=(const Bootstrap &) = delete;
    virtual ~Bootstrap() = default;

    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;
    /// `all` (size()·bytes) gets each rank's `mine` (bytes), in rank order.
    virtual Status allgather(const void *mine, size_t bytes, void *all) = 0;
    virtual Status barrier() = 0;
    /// A barrier that calls `meanwhile` again and again until all ranks are there, where it can. An error of that ends
    /// it on this rank; after that nothing else may be called.
    virtual Status meet(const std::function<Status()> & /*meanwhile*/) { return barrier(); }
    /// Lets the program's own pending traffic move (for MPI: enters its progress engine). Cheap; any thread of the
    /// communicator.
    virtual void progress() = 0;
    /// Ranks of the whole program on this host, as its launcher says; 0 where it does not.
    [[nodiscard]] virtual int ranks_on_host() const { return 0; }
    /// Ranks of the whole program; 0 where that is not known.
    [[nodiscard]] virtual int ranks_of_program() const { return 0; }
    /// Splits as MPI_Comm_split does; color < 0 gives a null pointer.
    virtual Status split(int color, int key, std::unique_ptr<Bootstrap> &result) = 0;
    virtual Status dup(std::unique_ptr<Bootstrap> &result) = 0;

    /// Texts of any length from every rank, in rank order.
    Status allgather_text(const std::string &mine, std::vector<std::string> &all);
};

/// Collective. The first status that is not success among all ranks', on every rank (each rank's own where it has one),
/// so that a rank that fails in making something leaves none waiting. `of`: of what the ranks are, in the sentence.
/// `logs`: the first rank that has an error logs it, unless that is FLX_ERR_ARGUMENT.
Status agree(Bootstrap &bootstrap, Status status, std::string_view of = "", bool logs = false);
/// The same of what `stage()` returns, logged; where it throws, what the exception says.
template <typename Stage>
Status agree_on(Bootstrap &bootstrap, Stage &&stage) {
    return agree(bootstrap, caught("making the communicator", stage), "", true);
}

}  // namespace flx

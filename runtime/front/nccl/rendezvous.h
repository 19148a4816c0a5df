/// \file rendezvous.h
/// Where the ranks of an NCCL communicator meet for FLX: shared memory under a name that only they can make up (from
/// NCCL's unique id), without MPI and without the GPUs. Ranks are processes, or threads of one.
///
/// Every rank attends before it calls NCCL, whose making of a communicator returns to no rank before all have begun it.
/// So afterwards all that share this memory have attended, and if they are all ranks there are, all of them see that.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/descriptors.h"
#include "runtime/base/status.h"
#include "runtime/front/nccl/agreement.h"
#include "runtime/link/bootstrap.h"

namespace flx::nccl {

/// A name out of what is the same on the ranks of one communicator, and on no others.
std::string key_of(std::initializer_list<std::string_view> parts);

class Rendezvous : public std::enable_shared_from_this<Rendezvous> {
  public:
    static Status attend(const std::string &key, std::shared_ptr<Rendezvous> &result);
    ~Rendezvous();
    Rendezvous(const Rendezvous &) = delete;
    Rendezvous &operator=(const Rendezvous &) = delete;

    /// After NCCL has made the communicator: whether all its ranks are here. Takes the name away. 2 to 8 ranks.
    bool complete(int ranks);
    /// From now on this rank's death is noticed.
    Status bind(int rank, int ranks);
    /// Between all ranks, after bind(). Waits end with an error when a rank dies or goes, or after set_patience().
    std::unique_ptr<Bootstrap> bootstrap();
    /// Collective, once: true on all ranks if all of them say yes within the patience; else false on all.
    bool decide(bool yes);
    /// This rank goes without its peers.
    void leave();
    void set_patience(double seconds) { patience_s_ = seconds; }
    [[nodiscard]] AgreementBoard &board();          ///< of groups that look like an all-to-all
    [[nodiscard]] AgreementBoard &outputs_board();  ///< of large calls

  private:
    friend class ShmBootstrap;
    struct Memory;
    struct Circle;
    class Wait;
    Rendezvous() = default;
    [[nodiscard]] Status look(int64_t waited_ns, int awaited) const;
    void remove_name();

    std::string name_;
    OwnDescriptor file_;
    Memory *memory_ = nullptr;
    int rank_ = -1;
    int ranks_ = 0;
    double patience_s_ = 60;
};

}  // namespace flx::nccl

/// \file far_host.h
/// A communicator's ranks as a FarHost: a second communicator of the same ranks, with a process of its own, so that a
/// thread that uses it meets no call of the program's.
#pragma once

#include <memory>
#include <vector>

#include "runtime/communicator/communicator.h"
#include "runtime/cuda/far/far_lanes.h"

namespace flx {

class FarCommunicator final : public cuda::FarHost {
  public:
    /// Collective. `parent`: of the same ranks. `health`: its, outlives this. `tiers`: of more than one rank a host,
    /// for a third communicator, of the ranks of this place; else none.
    static Status make(Communicator &parent, cuda::Health &health, const cuda::Tiers &tiers,
                       std::unique_ptr<cuda::FarHost> &result);
    ~FarCommunicator() override;

    Status begin(const Operation &call, void *&ticket) override;
    Status begin_across(const Operation &call, void *&ticket) override;
    Status begin(const cuda::Message &message, void *&ticket) override;
    Status look(void *ticket, bool &done) override;
    void moved() override;
    Status pause() override;
    Status watch() override;
    [[nodiscard]] Status told() const override;
    void give_up(const Status &why) override;
    void close() override;
    [[nodiscard]] std::vector<std::string> report() const override;

  private:
    class QuietBootstrap;
    explicit FarCommunicator(cuda::Health &health) : health_(health) {}

    /// A communicator and what a wait for it needs.
    struct Circle {
        QuietBootstrap *bootstrap = nullptr;  ///< the communicator's
        std::unique_ptr<Communicator> comm;   ///< null: there is none
        std::unique_ptr<Waiter> waiter;
        std::vector<const Pending *> under_way;
    };
    static Status make(Communicator &parent, std::unique_ptr<Bootstrap> inner, bool same_ranks, Circle &circle);
    static Status begin(Circle &circle, const Operation &given, void *&ticket);
    /// Of a ticket.
    Circle &circle_of(const Pending *pending);

    cuda::Health &health_;
    Circle all_;
    Circle across_;
    uint32_t pauses_ = 0;
};

}  // namespace flx

/// \file far_host.h
/// A communicator's ranks as a FarHost: a second communicator of the same ranks, with a process of its own, so that a
/// thread that uses it meets no call of the program's.
#pragma once

#include <memory>

#include "communicator.h"
#include "far_lanes.h"

namespace flx {

class FarCommunicator final : public cuda::FarHost {
  public:
    /// Collective. `parent`: of the same ranks. `health`: its, outlives this.
    static Status make(Communicator &parent, cuda::Health &health, std::unique_ptr<cuda::FarHost> &result);
    ~FarCommunicator() override;

    Status begin(const cuda::Call &given, void *&ticket) override;
    Status begin(const cuda::Message &message, void *&ticket) override;
    Status look(void *ticket, bool &done) override;
    void moved() override { waiter_->moved(); }
    Status pause() override;
    Status watch() override { return health_.look(-1); }
    void give_up(const Status &why) override { comm_->give_up(why); }
    void close() override;
    [[nodiscard]] std::vector<std::string> report() const override;

  private:
    class QuietBootstrap;
    explicit FarCommunicator(cuda::Health &health) : health_(health) {}

    cuda::Health &health_;
    QuietBootstrap *bootstrap_ = nullptr;  ///< the communicator's
    std::unique_ptr<Communicator> comm_;
    std::unique_ptr<Waiter> waiter_;
};

}  // namespace flx

/// \file engine_reach.h
/// The memory of flx_malloc that a communicator's ranks have mapped (runtime/shm/memory/windows.h), as a copy engine
/// reaches it: each rank's by that rank's window, this one's own too, so that nothing is pinned where the program could
/// unmap it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/shm/copies/copies.h"
#include "runtime/shm/memory/windows.h"

namespace flx::shm {

class EngineReach final : public Reach {
  public:
    /// An engine, null for now, or null and `why` there will never be one.
    using Source = std::function<std::unique_ptr<CopyEngine>(std::string &why)>;

    EngineReach(int rank, int ranks, Source source);

    /// The next call's: windows that show all that is touched of others, and by rank the pieces given back.
    void prepare(Windows &windows, const std::vector<uint32_t> &freed);

    CopyEngine *hold(const std::vector<Copy> &copies) override;
    void release() override;
    [[nodiscard]] std::byte *place(int rank, const std::byte *at) override;
    void lost() override;

    /// Null before the first.
    [[nodiscard]] const CopyEngine *engine() const { return engine_.get(); }
    /// Not empty: there is none, and will be none.
    [[nodiscard]] const std::string &why_none() const { return why_none_; }

  private:
    [[nodiscard]] uint64_t own_offset(const std::byte *at, size_t bytes);
    bool add(int rank, const std::byte *at, size_t bytes);
    bool show_own();

    int rank_;
    Source source_;
    std::unique_ptr<CopyEngine> engine_;
    std::string why_none_;
    Windows *windows_ = nullptr;
    const std::vector<uint32_t> *freed_ = nullptr;
    std::vector<std::vector<Pins::Range>> ranges_;  ///< by rank
    std::vector<Pins *> pins_;                      ///< likewise, of the call; null: none is needed
    std::vector<Pins *> held_;
    KnownPlaces own_;  ///< where this rank's buffers are
};

}  // namespace flx::shm

/// \file agreement.h
/// Whether all ranks come with the same at the same time: sends and receives that look like an all-to-all to each of
/// them, or a large call that may write straight into outputs (outputs.h). If not, all of them do without. In memory
/// that the ranks share; no rank waits for another for longer than a moment, since its peers need not come at all.
///
/// Every rank numbers what it offers. The k-th is decided in slot k % kSlots, one word that says which k is in it, who
/// has come, who has seen the decision, and what it is: whoever comes last compares what all offered and decides;
/// whoever has waited for too long decides that they are apart. Offers hold how many messages each pair has exchanged
/// before, so groups that only happen to have the same number are not taken for one.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "runtime/cuda/memory/shown_memory.h"
#include "runtime/front/nccl/routing.h"

namespace flx::nccl {

struct Offer {
    uint64_t bytes = 0;  ///< of a group: for each peer
    std::array<uint64_t, kMaxRanks> sent{};
    std::array<uint64_t, kMaxRanks> received{};
    // Not compared:
    cuda::Showing output;
    int64_t waited_ns = 0;  ///< for the others, the last time
};
using Offers = std::array<Offer, kMaxRanks>;

/// In shared memory that was zero.
struct AgreementBoard {
    static constexpr uint64_t kSlots = 16;
    struct alignas(64) Slot {
        std::atomic<uint64_t> word{0};
        Offers offers{};
    };
    std::array<Slot, kSlots> slots;
    std::atomic<uint32_t> given_up{0};  ///< ranks do not come together on this communicator: nobody tries any more
};

/// One rank's part. One thread at a time.
class Agreement {
  public:
    /// `tries`: how often ranks may be apart in a row before nobody tries any more; 0: always.
    Agreement(AgreementBoard &board, int rank, int ranks, int tries = 4)
        : board_(board), rank_(rank), ranks_(ranks), tries_(tries) {}

    /// Offers the next group; true if all may still come together, then ask decide() once.
    bool offer(const Offer &mine);
    /// Waits for at most `patience_ns`. True: all ranks have come with the same, and all get this answer and, if asked
    /// for, what each offered.
    bool decide(int64_t patience_ns, Offers *all = nullptr);

  private:
    AgreementBoard &board_;
    int rank_;
    int ranks_;
    int tries_;
    uint64_t number_ = 0;  ///< of the last offer; from 1
    int failed_ = 0;       ///< one after the other
};

}  // namespace flx::nccl

/// \file outputs.h
/// Large calls of which all ranks come at once: they show each other where their outputs are, which peers then write
/// straight into, by copy engines and with a share over PCIe, instead of through slots. NCCL's programs register no
/// memory; an allocation is opened by the peers in the first call that writes to it.
///
/// Ranks whose GPUs have nothing to do meanwhile lose what they wait for each other. So each says how much it lost the
/// last time, and where that is more than the better way gains, they meet no more for a while.
///
/// In steps, since one thread may have several ranks: begin() for all of them, then compare(), then end().
#pragma once

#include "runtime/front/nccl/agreement.h"
#include "runtime/front/nccl/engine.h"

namespace flx::nccl {

class Outputs {
  public:
    Outputs(AgreementBoard &board, int rank, int ranks) : agreement_(board, rank, ranks, 0), ranks_(ranks) {}

    /// Less is not worth a meeting of the ranks.
    static constexpr size_t kLeast = size_t{4} << 20;
    static bool may_be_met(Kind kind, size_t bytes) {
        return bytes >= kLeast && (kind == Kind::allreduce || kind == Kind::allgather || kind == Kind::broadcast ||
                                   kind == Kind::alltoall);
    }

    /// For the same calls on all ranks. `frozen`: nothing may be opened, a graph is being captured.
    void begin(Lane &lane, const Operation &operation, size_t bytes, bool frozen);
    void compare(Lane &lane, int64_t patience_ns);
    /// This rank's GPU had work all the time that compare() took.
    void lost_nothing() { waited_ns_ = 0; }
    /// True on all ranks: outputs may be written, and shown() says where they are. Else on none.
    bool end(Lane &lane);
    [[nodiscard]] std::span<const cuda::Showing> shown() const { return {shown_.data(), size_t(ranks_)}; }

  private:
    enum class State : uint8_t { apart, begun, opening, writable };
    void note(bool together);
    void weigh(const Offers &all, size_t bytes, int64_t patience_ns);
    void pause();

    Agreement agreement_;
    int ranks_;
    State state_ = State::apart;
    Status opened_;
    std::array<cuda::Showing, kMaxRanks> shown_{};
    size_t bytes_ = 0;
    int64_t waited_ns_ = 0;
    int64_t lost_ns_ = 0;  ///< by waiting longer than it is worth
    // Where ranks are apart now and then it is tried again, less and less often.
    int failed_ = 0;
    unsigned skip_ = 0;
    unsigned pause_ = 0;
};

}  // namespace flx::nccl

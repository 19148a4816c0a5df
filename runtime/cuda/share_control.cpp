#include "share_control.h"

namespace flx::cuda {
namespace {

constexpr int kPcie = 1;

}  // namespace

void ShareControl::set_estimates(Kind kind, const std::array<LinkEstimate, kGpuLinks> &estimates) {
    ControllerOptions options;
    options.window = 4;
    options.hysteresis = 0.004;
    // A share of a twentieth is all there is to gain, where many GPUs share the host's memory.
    options.min_gain = 0.01;
    options.explore_share = 0.02;
    options.frozen = frozen_;
    first_[index(kind)] = std::make_unique<Controller>(estimates, options);
    learnt_[index(kind)] = std::make_unique<Controller>(estimates, options);
}

double ShareControl::first_share(Kind kind, uint64_t message) const {
    return knows(kind) ? first_[index(kind)]->vector(message, 0).share(kPcie) : 0;
}

ShareControl::Turn ShareControl::next(Kind kind, uint64_t message) {
    constexpr uint64_t kEvery = 2;
    if (!knows(kind))
        return {};
    learn();
    const int size = size_class(message);
    ShareBoard &board = table_.boards[index(kind)][size];
    Turn turn;
    turn.number = calls_[index(kind)][size]++;
    const uint32_t first = first_[index(kind)]->vector(message, 0).weight[kPcie];
    turn.share = static_cast<double>(board.share_of(rank_, turn.number, first)) / ShareBoard::kWhole;
    turn.sampled = !frozen_ && turn.number % kEvery == 0;
    return turn;
}

void ShareControl::tell(Kind kind, uint64_t message, const Turn &turn, uint64_t pcie_bytes, ShareBoard::Times times) {
    table_.boards[index(kind)][size_class(message)].publish(rank_, turn.number, times);
    if (rank_ == 0)
        awaited_ = Awaited{kind, message, turn.number, pcie_bytes};
}

void ShareControl::learn() {
    if (!awaited_)
        return;
    const int kind = index(awaited_->kind);
    const int size = size_class(awaited_->message);
    ShareBoard &board = table_.boards[kind][size];
    ShareBoard::Times times{};
    if (!board.collect(ranks_, awaited_->number, times))
        return;
    const std::array<LinkSample, kGpuLinks> samples{
        LinkSample{awaited_->message - awaited_->pcie_bytes, times.nvlink_ns},
        LinkSample{awaited_->pcie_bytes, awaited_->pcie_bytes == 0 ? 0 : times.pcie_ns}};
    Controller &controller = *learnt_[kind];
    controller.observe(awaited_->message, 0, samples);
    const uint32_t share = controller.vector(awaited_->message, 0).weight[kPcie];
    uint32_t &proposed = proposed_[kind][size];
    const uint32_t before = proposed != 0 ? proposed - 1 : first_[kind]->vector(awaited_->message, 0).weight[kPcie];
    if (share != before && board.propose(ranks_, share))
        proposed = share + 1;
    awaited_.reset();
}

}  // namespace flx::cuda

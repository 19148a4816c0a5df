#include "runtime/cuda/near/share_control.h"

#include <fmt/format.h>

#include "runtime/cuda/protocol/plan.h"

namespace flx::cuda {
namespace {

constexpr int kPcie = 1;

/// Least message of which a share pays: what comes last of a reduce-scatter must still be added.
uint64_t least_message(Collective collective) {
    return collective == Collective::reduce_scatter_block ? uint64_t{512} << 20 : 0;
}

/// The controller takes all messages of a class for 1.5 times the least one, but most messages here are that least one.
/// So it gets them as if they were 1.5 times as long, and latencies too.
constexpr double kMiddle = 1.5;
double scale_of(uint64_t message) {
    return kMiddle * static_cast<double>(uint64_t{1} << size_class(message)) / static_cast<double>(message);
}

}  // namespace

void ShareControl::set_estimates(Collective collective, const std::array<LinkEstimate, kGpuLinks> &estimates) {
    ControllerOptions options;
    // Every other call is seen: few, so that shares follow soon what else begins or ceases to use PCIe.
    options.window = 2;
    options.hysteresis = 0.004;
    // A share of a twentieth is all there is to gain, where many GPUs share the host's memory.
    options.min_gain = 0.01;
    options.explore_share = 0.02;
    options.frozen = frozen_;
    std::array<LinkEstimate, kGpuLinks> scaled = estimates;
    for (LinkEstimate &link : scaled)
        link.latency_ns *= kMiddle;
    for (const int row : {row_of(collective), row_of(collective, true)}) {
        first_[row] = std::make_unique<Controller>(scaled, options);
        learnt_[row] = std::make_unique<Controller>(scaled, options);
    }
}

double ShareControl::first_share(Collective collective, uint64_t message) const {
    return divides(collective, message) ? first_[row_of(collective)]->vector(message, 0).share(kPcie) : 0;
}

bool ShareControl::divides(Collective collective, uint64_t message) const {
    return knows(collective) && message >= least_message(collective);
}

ShareControl::Turn ShareControl::next(Collective collective, uint64_t message, bool in_place) {
    if (!divides(collective, message))
        return {};
    learn();
    const int size = size_class(message);
    Turn turn;
    turn.row = row_of(collective, in_place);
    ShareBoard &board = table_.boards[turn.row][size];
    turn.number = calls_[turn.row][size]++;
    const uint32_t first = first_[turn.row]->vector(message, 0).weight[kPcie];
    turn.share = static_cast<double>(board.share_of(rank_, turn.number, first)) / ShareBoard::kWhole;
    last_[turn.row][size] = turn.share;
    turn.sampled = !frozen_ && turn.number % ShareBoard::kEvery == 0;
    return turn;
}

void ShareControl::tell(uint64_t message, const Turn &turn, uint64_t pcie_bytes, ShareBoard::Times times) {
    table_.boards[turn.row][size_class(message)].publish(rank_, turn.number, times);
    if (rank_ == 0) {
        if (awaited_begun_ - awaited_done_ == awaited_.size())
            ++awaited_done_;  // some rank did not time that call
        awaited_[awaited_begun_++ % awaited_.size()] = {turn.row, message, turn.number, pcie_bytes};
    }
}

void ShareControl::learn() {
    while (awaited_done_ < awaited_begun_ && learn_from(awaited_[awaited_done_ % awaited_.size()]))
        ++awaited_done_;
}

/// Learns from a call; false: not all ranks have published their times of it.
bool ShareControl::learn_from(const Awaited &awaited) {
    const int row = awaited.row;
    const int size = size_class(awaited.message);
    ShareBoard &board = table_.boards[row][size];
    ShareBoard::Times times{};
    if (!board.collect(ranks_, awaited.number, times))
        return false;
    const double scale = scale_of(awaited.message);
    const auto scaled = [&](uint64_t number) { return static_cast<uint64_t>(static_cast<double>(number) * scale); };
    const std::array<LinkSample, kGpuLinks> samples{
        LinkSample{scaled(awaited.message - awaited.pcie_bytes), scaled(times.nvlink_ns)},
        LinkSample{scaled(awaited.pcie_bytes), awaited.pcie_bytes == 0 ? 0 : scaled(times.pcie_ns)}};
    Controller &controller = *learnt_[row];
    controller.observe(awaited.message, 0, samples);
    ++learnt_from_[row][size];
    const uint32_t share = controller.vector(awaited.message, 0).weight[kPcie];
    uint32_t &proposed = proposed_[row][size];
    const uint32_t before = proposed != 0 ? proposed - 1 : first_[row]->vector(awaited.message, 0).weight[kPcie];
    if (share != before && board.propose(ranks_, share))
        proposed = share + 1;
    return true;
}

std::vector<Decision> ShareControl::explain() const {
    std::vector<Decision> decisions;
    for (int row = 0; row < kShareRows; ++row) {
        const Collective collective = row == kInPlace ? Collective::allreduce : kServed[row];
        for (int size = 0; size < kSizeClasses; ++size) {
            if (calls_[row][size] == 0)
                continue;
            const uint64_t message = uint64_t{1} << size;
            const double first = first_[row]->vector(message, 0).share(kPcie);
            const double last = last_[row][size];
            std::string from =
                fmt::format("{:.3f} and {:.3f} by what was measured when memory was registered", 1 - first, first);
            if (rank_ == 0)
                from += fmt::format("; {} of {} calls were timed", learnt_from_[row][size], calls_[row][size]);
            decisions.push_back({fmt::format("{} on GPUs{}", name_of(collective), row == kInPlace ? " in place" : ""),
                                 message, fmt::format("nvlink {:.3f}, pcie {:.3f}", 1 - last, last), from});
        }
    }
    return decisions;
}

}  // namespace flx::cuda

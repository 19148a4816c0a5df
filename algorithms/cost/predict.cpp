#include "algorithms/cost/predict.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace flx::algorithms {
namespace {

/// Long blocks go in so many parts, one after another, as executors pipeline their cells.
constexpr double kMostParts = 32;
constexpr double kPartBytes = 64 << 10;
/// A walk over more parts of steps than this would take too long.
constexpr double kMostNodes = 60'000;
/// Where there are more ranks than are all walked. Pipelines of so many ranks need parts that are short: so few of them
/// are walked, and each further one takes as long as the last ones did.
constexpr double kMostNodesOfMany = 1'200'000;
constexpr double kMostPartsOfMany = 16;

double time_of(const StepGraph &graph, const Walked &walked) {
    return graph.collective() == Collective::scatter ? (walked.end + walked.busiest) / 2 : walked.end;
}

/// What parts did that were not walked, in the proportions of those that were.
void add_rest(WalkReport &report, double parts, double time) {
    report.near_bytes *= parts;
    report.far_bytes *= parts;
    report.near_messages *= parts;
    report.far_messages *= parts;
    for (double &bytes : report.across_bytes)
        bytes *= parts;
    CriticalPath &path = report.path;
    for (double *ns : {&path.messages, &path.copies, &path.sums, &path.wire, &path.queue, &path.latency})
        *ns *= time;
}

}  // namespace

double predict_ns(const Algorithm &algorithm, Collective collective, const Placement &placement, size_t bytes,
                  const CostModel &model) {
    return predict_ns(StepGraph(algorithm, collective, placement), bytes, model);
}

double predict_ns(const StepGraph &graph, size_t bytes, const CostModel &model, const Fabric &fabric,
                  WalkReport *report) {
    if (graph.too_large())
        return std::numeric_limits<double>::infinity();
    const double block = static_cast<double>(bytes) / graph.blocks();
    const double steps = std::max<double>(graph.steps(), 1);
    if (graph.placement().size() <= kAllWalked) {
        const double times = static_cast<double>(graph.placement().size()) / static_cast<double>(graph.ranks().size());
        const double most = std::clamp(kMostNodes / (steps * times), 1.0, kMostParts);
        const auto parts = static_cast<uint32_t>(std::clamp(block / kPartBytes, 1.0, most));
        return time_of(graph, walk(graph, {block / parts, parts}, model, fabric, report));
    }
    const double whole = std::max(std::floor(block / kPartBytes), 1.0);
    const double most = std::clamp(std::floor(kMostNodesOfMany / steps), 1.0, kMostPartsOfMany);
    const auto walked = static_cast<uint32_t>(std::min(whole, most));
    // Where there is no room for two parts, blocks go as they are.
    const double part = walked == 1 ? block : block / whole;
    const double time = time_of(graph, walk(graph, {part, walked}, model, fabric, report));
    if (report != nullptr)
        report->far_block = block;
    if (walked == 1 || walked == static_cast<uint32_t>(whole))
        return time;
    const uint32_t half = walked / 2;
    const double before = time_of(graph, walk(graph, {part, half}, model, fabric, nullptr));
    const double all = time + (whole - walked) * (time - before) / (walked - half);
    if (report != nullptr)
        add_rest(*report, whole / walked, all / time);
    return all;
}

}  // namespace flx::algorithms

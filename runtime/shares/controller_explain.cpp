/// What a controller says of its decisions.
#include <fmt/format.h>

#include "runtime/shares/controller.h"

namespace flx {

std::vector<Decision> Controller::explain(std::span<const std::string> names) const {
    std::vector<Decision> decisions;
    for (int index = 0; index < kClasses; ++index) {
        const ClassState &state = classes_[static_cast<size_t>(index)];
        if (state.calls == 0)
            continue;
        const int phase = index / kSizeClasses;
        const int slot = slot_of(index);
        Decision decision{
            phase == 0 ? "blocks" : "blocks on their way back", size_t{1} << index % kSizeClasses, {}, {}};
        for (int link = 0; link < count_; ++link) {
            if (state.vector.weight[link] == 0)
                continue;
            const Estimate &believed = estimate(slot, link);
            const char *const comma = decision.decided.empty() ? "" : ", ";
            decision.decided += fmt::format("{}{} {:.2f}", comma, names[link], state.vector.share(link));
            if (forced_)
                continue;
            decision.from += believed.cost == 0
                                 ? fmt::format("{}{} not measured", comma, names[link])
                                 : fmt::format("{}{} {:.3g} GB/s {}", comma, names[link], believed.rate(),
                                               believed.own ? "in these calls" : "by the probe or other sizes");
        }
        decision.from = forced_ ? "forced" : fmt::format("{}; {} calls", decision.from, state.calls);
        decisions.push_back(std::move(decision));
    }
    for (int link = 0; link < count_; ++link)
        if (const LinkVerdict no = verdict(link, names); !no.on)
            decisions.push_back({names[link], 0, "carries nothing", no.why});
    return decisions;
}

}  // namespace flx

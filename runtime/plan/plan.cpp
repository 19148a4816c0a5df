#include "runtime/plan/plan.h"

#include <utility>

namespace flx {

using algorithms::StepKind;

Plan::Plan(const algorithms::Algorithm &algorithm, const algorithms::Request &request)
    : Plan(algorithm, algorithm.build(request), request.rank, request.size) {}

Plan::Plan(const algorithms::Algorithm &algorithm, algorithms::Schedule schedule, int rank, int size)
    : algorithm_(&algorithm), schedule_(std::move(schedule)), receives_(size), sends_(size) {
    for (uint32_t index = 0; index < schedule_.steps.size(); ++index) {
        const algorithms::Step &step = schedule_.steps[index];
        const Entry entry{step.phase, step.block, index};
        switch (step.kind) {
            case StepKind::send:
                sends_[step.peer].push_back(entry);
                break;
            case StepKind::recv:
            case StepKind::recv_reduce:
                receives_[step.peer].push_back(entry);
                break;
            case StepKind::gather_reduce:
                for (const int peer : schedule_.group_of(step))
                    if (peer != rank)
                        receives_[peer].push_back(entry);
                break;
            case StepKind::copy:
                break;
        }
    }
    for (int peer = 0; peer < size; ++peer)
        if (!receives_[peer].empty() || !sends_[peer].empty())
            peers_.push_back(peer);
}

uint32_t Plan::find(const Table &table, int peer, uint32_t phase, uint32_t block) {
    for (const Entry &entry : table[peer])
        if (entry.block == block && entry.phase == phase)
            return entry.step;
    return kNone;
}

uint32_t Plan::receiving_step(int peer, uint32_t phase, uint32_t block) const {
    return find(receives_, peer, phase, block);
}

uint32_t Plan::sending_step(int peer, uint32_t phase, uint32_t block) const {
    return find(sends_, peer, phase, block);
}

}  // namespace flx

#include "apps/flx_simulate/cells.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "algorithms/cost/predict.h"
#include "runtime/plan/staged.h"

namespace flx::simulate {

using algorithms::Algorithm;
using algorithms::Collective;
using algorithms::StepGraph;

double bus_bandwidth(Collective collective, size_t bytes, int ranks, double ns) {
    const double others = (ranks - 1.0) / ranks;
    double factor = 1;
    switch (collective) {
        case Collective::allreduce:
            factor = 2 * others;
            break;
        case Collective::allgather:
        case Collective::reduce_scatter_block:
        case Collective::alltoall:
        case Collective::gather:
        case Collective::scatter:
            factor = others;
            break;
        default:
            break;
    }
    return factor * static_cast<double>(bytes) / ns;
}

Experiment::Experiment(const Machine &machine, Collective collective)
    : machine_(machine), collective_(collective), placement_(machine.placement()) {
    Agreed agreed;
    agreed.size = machine.size();
    agreed.hosts = machine.hosts;
    agreed.placement = placement_;
    agreed.costs = machine.costs;
    agreed.staged_bytes = machine.ranks > 1 ? kStagedBytes : 0;
    static_cast<void>(Planner::make(0, agreed, "", planner_).ok());
}

double Experiment::ns_of(const Choice &choice, size_t bytes, const algorithms::CostModel &costs, Outcome &outcome) {
    switch (choice.way) {
        case Way::scheduled: {
            std::unique_ptr<StepGraph> &graph = graphs_[choice.algorithm];
            if (!graph)
                graph = std::make_unique<StepGraph>(*choice.algorithm, collective_, placement_);
            outcome.walked = true;
            return algorithms::predict_ns(*graph, bytes, costs, machine_.fabric, &outcome.report);
        }
        case Way::staged:
            return predict_staged_ns(collective_, choice.algorithm, bytes, placement_, costs, machine_.fabric);
        default:
            return predict_exchange_ns(bytes, placement_, costs, machine_.fabric);
    }
}

Cell Experiment::cell(size_t bytes) {
    Cell cell{collective_, bytes, {}, 0};
    const Choice chosen = planner_->choose(collective_, bytes);
    for (const Planner::Candidate &one : planner_->all_candidates(collective_, bytes)) {
        Outcome outcome;
        outcome.name = one.choice.name();
        outcome.ns = ns_of(one.choice, bytes, machine_.costs, outcome);
        cell.outcomes.push_back(std::move(outcome));
    }
    std::ranges::stable_sort(cell.outcomes, {}, &Outcome::ns);
    const auto found = std::ranges::find(cell.outcomes, std::string(chosen.name()), &Outcome::name);
    cell.chosen = static_cast<size_t>(found - cell.outcomes.begin());
    return cell;
}

double Experiment::ns_at(size_t bytes, double far_bytes_per_ns) {
    algorithms::CostModel costs = machine_.costs;
    costs.far.bytes_per_ns = far_bytes_per_ns;
    Outcome outcome;
    return ns_of(planner_->choose(collective_, bytes), bytes, costs, outcome);
}

size_t cells_of(const std::vector<Collective> &collectives, const std::vector<size_t> &sizes) {
    size_t cells = 0;
    for (const Collective collective : collectives)
        cells += collective == Collective::barrier ? 1 : sizes.size();
    return cells;
}

std::vector<Cell> run_all(const Machine &machine, const std::vector<Collective> &collectives,
                          const std::vector<size_t> &sizes, const std::function<void(size_t)> &done) {
    std::vector<std::vector<Cell>> rows(collectives.size());
    std::atomic<size_t> next{0};
    std::mutex mutex;
    size_t ready = 0;
    const auto work = [&] {
        for (size_t at = next++; at < collectives.size(); at = next++) {
            Experiment experiment(machine, collectives[at]);
            const bool barrier = collectives[at] == Collective::barrier;
            for (const size_t bytes : barrier ? std::vector{sizeof(double)} : sizes) {
                rows[at].push_back(experiment.cell(bytes));
                const std::lock_guard lock(mutex);
                done(++ready);
            }
        }
    };
    {
        std::vector<std::jthread> threads;
        const size_t most = std::max(1U, std::thread::hardware_concurrency());
        for (size_t i = 1; i < std::min(most, collectives.size()); ++i)
            threads.emplace_back(work);
        work();
    }
    std::vector<Cell> cells;
    for (std::vector<Cell> &row : rows)
        std::ranges::move(row, std::back_inserter(cells));
    return cells;
}

}  // namespace flx::simulate

#include "apps/flx_simulate/cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "algorithms/cost/predict.h"
#include "apps/flx_simulate/one_host.h"
#include "runtime/base/config.h"
#include "runtime/plan/staged.h"
#include "runtime/shares/controller.h"
#include "runtime/shares/routes.h"
#include "runtime/shares/water_fill.h"

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

namespace {

Status make_planner(const Machine &machine, algorithms::Placement placement, std::unique_ptr<Planner> &planner) {
    Agreed agreed;
    agreed.size = machine.size();
    agreed.hosts = machine.hosts;
    agreed.placement = std::move(placement);
    agreed.costs = machine.costs;
    agreed.part = machine.part;
    agreed.staged_bytes = machine.hosts > 1 && machine.ranks > 1 ? kStagedBytes : 0;
    if (machine.hosts == 1) {
        agreed.fused_bytes = Config().size("FLX_FUSED_BYTES");  // by default
        agreed.shared_memory = true;
        agreed.peer_memory = true;
        agreed.ways = shm::Ways(true);
    }
    return Planner::make(0, agreed, machine.rules, planner);
}

}  // namespace

std::string check_rules(const Machine &machine) {
    std::unique_ptr<Planner> planner;
    const Status status = make_planner(machine, machine.placement(), planner);
    return status.ok() ? "" : status.sentence();
}

Experiment::Experiment(const Machine &machine, Collective collective)
    : machine_(machine), collective_(collective), placement_(machine.placement()) {
    if (const Status status = make_planner(machine, placement_, planner_); !status.ok())
        throw std::runtime_error(status.sentence());
}

/// Bytes/ns of the rails that messages of so many bytes use, where they are sent again and again.
double Experiment::lasting_rate(Way way, double message) const {
    struct Lane {
        double latency, rate, cost, work;
        int link, preference;
    };
    std::vector<Lane> lanes;
    const algorithms::TierCost &far = machine_.costs.far;
    for (const double rate : machine_.rates)
        lanes.push_back({far.latency_ns, rate, 1 / rate, 2 * far.send_ns, 0, 0});
    const double fastest = std::ranges::max(machine_.rates);
    if (collective_ == Collective::alltoall && message >= kSmallBytes && message < Routes::kLeastCut)
        return std::max(fastest, static_cast<double>(machine_.rails) * std::ranges::min(machine_.rates));
    std::vector<double> shares(lanes.size());
    water_fill(lanes, static_cast<int>(lanes.size()), std::max(message, 1.0), ControllerOptions().min_gain,
               shares.data());
    double last = 0;
    for (size_t rail = 0; rail < lanes.size(); ++rail)
        last = std::max(last, shares[rail] * lanes[rail].cost);
    const bool whole = std::ranges::count(shares, 0.0) + 1 == std::ssize(shares);
    const bool crowded = way == Way::exchanged && !whole;
    return 1 / last / (crowded ? 1 + machine_.crowd * (1 - 1.0 / machine_.ranks) : 1);
}

double Experiment::ns_of(const Choice &choice, size_t bytes, const algorithms::CostModel &costs,
                         const algorithms::Fabric &fabric, Outcome &outcome) {
    if (machine_.burst == 0 || machine_.hosts == 1)
        return ns_at_once(choice, bytes, costs, fabric, outcome);
    // Short calls find shapers' buckets full, so each message passes at the buckets' rate. But calls that follow each
    // other send no more than rails carry in the long run.
    algorithms::CostModel quick = costs;
    quick.far.bytes_per_ns = machine_.burst;
    const double ns = ns_at_once(choice, bytes, quick, fabric, outcome);
    const double slower = machine_.costs.far.bytes_per_ns / costs.far.bytes_per_ns;
    algorithms::WalkReport &report = outcome.report;
    const double sent = report.far_bytes / machine_.hosts;
    const double longer = sent == 0 ? 0 : slower * sent / lasting_rate(choice.way, report.far_block) - ns;
    if (longer <= 0)
        return ns;
    report.path.wire += longer;
    return ns + longer;
}

double Experiment::ns_at_once(const Choice &choice, size_t bytes, const algorithms::CostModel &costs,
                              const algorithms::Fabric &fabric, Outcome &outcome) {
    switch (choice.way) {
        case Way::scheduled: {
            std::unique_ptr<StepGraph> &graph = graphs_[choice.algorithm];
            if (!graph)
                graph = std::make_unique<StepGraph>(*choice.algorithm, collective_, placement_);
            outcome.walked = true;
            return algorithms::predict_ns(*graph, bytes, costs, fabric, &outcome.report);
        }
        case Way::staged:
            return predict_staged_ns(collective_, choice.algorithm, bytes, placement_, costs, fabric, &outcome.report);
        case Way::exchanged:
            return predict_exchange_ns(bytes, placement_, costs, fabric, &outcome.report);
        default:
            return fabric.slow.times *
                   one_host_ns(collective_, choice.way, bytes, machine_.ranks, costs, machine_.together);
    }
}

Cell Experiment::cell(size_t bytes, bool steps) {
    Cell cell{collective_, bytes, {}, 0};
    const Choice chosen = planner_->choose(collective_, bytes, {.steps = steps});
    const auto add = [&](const Choice &choice) {
        Outcome outcome;
        outcome.name = choice.name();
        outcome.ns = ns_of(choice, bytes, machine_.costs, machine_.fabric, outcome);
        if (std::isfinite(outcome.ns))
            cell.outcomes.push_back(std::move(outcome));
    };
    for (const Planner::Candidate &one : planner_->all_candidates(collective_, bytes))
        if (!steps || one.choice.way == Way::scheduled || one.choice.way == Way::exchanged)
            add(one.choice);
    // Of an alltoall within a host not all ways are named as candidates.
    if (std::ranges::find(cell.outcomes, std::string(chosen.name()), &Outcome::name) == cell.outcomes.end())
        add(chosen);
    std::ranges::stable_sort(cell.outcomes, {}, &Outcome::ns);
    const auto found = std::ranges::find(cell.outcomes, std::string(chosen.name()), &Outcome::name);
    if (found == cell.outcomes.end())
        throw std::runtime_error(fmt::format("{} of {} bytes on {} ranks: {}, which FLX chooses, has too many steps",
                                             algorithms::name_of(collective_), bytes, machine_.size(), chosen.name()));
    cell.chosen = static_cast<size_t>(found - cell.outcomes.begin());
    return cell;
}

double Experiment::ns_at(size_t bytes, double far_bytes_per_ns) {
    algorithms::CostModel costs = machine_.costs;
    costs.far.bytes_per_ns = far_bytes_per_ns;
    Outcome outcome;
    return ns_of(planner_->choose(collective_, bytes), bytes, costs, machine_.fabric, outcome);
}

double Experiment::ns_beside(size_t bytes, const algorithms::SlowHost &slow) {
    algorithms::Fabric fabric = machine_.fabric;
    fabric.slow = slow;
    Outcome outcome;
    return ns_of(planner_->choose(collective_, bytes), bytes, machine_.costs, fabric, outcome);
}

bool has_blocks(Collective collective) {
    return collective == Collective::alltoall || algorithms::input_layout(collective) == algorithms::Layout::single ||
           algorithms::output_layout(collective) == algorithms::Layout::single;
}

std::vector<size_t> sizes_of(Collective collective, const std::vector<size_t> &sizes, int ranks) {
    if (collective == Collective::barrier)
        return {sizeof(double)};
    std::vector<size_t> there;
    std::ranges::copy_if(sizes, std::back_inserter(there), [&](size_t bytes) {
        return bytes >= (has_blocks(collective) ? static_cast<size_t>(ranks) : 1);
    });
    return there;
}

size_t cells_of(const Machine &machine, const std::vector<Collective> &collectives, const std::vector<size_t> &sizes) {
    size_t cells = 0;
    for (const Collective collective : collectives)
        cells += sizes_of(collective, sizes, machine.size()).size();
    return cells;
}

std::vector<std::vector<Cell>> run_rows(const std::vector<Asked> &asked, const std::function<void(size_t)> &done,
                                        size_t threads) {
    std::vector<std::vector<Cell>> rows(asked.size());
    std::atomic<size_t> next{0};
    std::mutex mutex;
    size_t ready = 0;
    std::exception_ptr thrown;
    const auto work = [&] {
        try {
            for (size_t at = next++; at < asked.size(); at = next++) {
                Experiment experiment(*asked[at].machine, asked[at].collective);
                for (const Asked::Call &call : asked[at].calls) {
                    rows[at].push_back(experiment.cell(call.bytes, call.steps));
                    const std::lock_guard lock(mutex);
                    done(++ready);
                }
            }
        } catch (...) {
            const std::lock_guard lock(mutex);
            thrown = std::current_exception();
            next = asked.size();
        }
    };
    {
        std::vector<std::jthread> others;
        const size_t most = threads != 0 ? threads : std::max(1U, std::thread::hardware_concurrency());
        for (size_t i = 1; i < std::min(most, asked.size()); ++i)
            others.emplace_back(work);
        work();
    }
    if (thrown)
        std::rethrow_exception(thrown);
    return rows;
}

std::vector<Cell> run_all(const Machine &machine, const std::vector<Collective> &collectives,
                          const std::vector<size_t> &sizes, const std::function<void(size_t)> &done, size_t threads) {
    std::vector<Asked> asked;
    for (const Collective collective : collectives) {
        asked.push_back({&machine, collective, {}});
        for (const size_t bytes : sizes_of(collective, sizes, machine.size()))
            asked.back().calls.push_back({bytes});
    }
    std::vector<Cell> cells;
    for (std::vector<Cell> &row : run_rows(asked, done, threads))
        std::ranges::move(row, std::back_inserter(cells));
    return cells;
}

}  // namespace flx::simulate

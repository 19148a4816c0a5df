/// \file cells.h
/// What FLX's planner chooses on a machine, and what each candidate takes there.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "algorithms/cost/walk.h"
#include "apps/flx_simulate/machine.h"
#include "runtime/plan/planner.h"

namespace flx::simulate {

/// One way to carry out a call, on the machine's network.
struct Outcome {
    std::string name;
    double ns = 0;
    bool walked = false;  ///< a schedule: there is a report; else a formula's time
    algorithms::WalkReport report;
};

/// A collective of one size.
struct Cell {
    algorithms::Collective collective = algorithms::Collective::allreduce;
    size_t bytes = 0;               ///< of the whole vector
    std::vector<Outcome> outcomes;  ///< least time first
    size_t chosen = 0;              ///< index of what the planner chooses

    [[nodiscard]] const Outcome &choice() const { return outcomes[chosen]; }
    [[nodiscard]] const Outcome &best() const { return outcomes.front(); }
    [[nodiscard]] double worse() const { return choice().ns / best().ns; }
};

/// As nccl-tests reckons it: bytes that each rank must send at least, in GB/s.
double bus_bandwidth(algorithms::Collective collective, size_t bytes, int ranks, double ns);

/// A sentence where the machine has rules that do not serve it; empty: they do.
std::string check_rules(const Machine &machine);

/// Cells of one collective on one machine. Not thread-safe; several may be used at a time.
class Experiment {
  public:
    /// A planner as communicators of that machine have it after probing: its model is the machine's, without switches.
    /// The machine's rules are known to serve it (check_rules).
    Experiment(const Machine &machine, algorithms::Collective collective);

    /// Throws where what the planner chooses is too large to be reckoned. Candidates that are too large are left out.
    /// `steps`: of a call that does not block, which goes step by step.
    [[nodiscard]] Cell cell(size_t bytes, bool steps = false);
    /// Nanoseconds of what the planner chooses, if each host's rails delivered so many bytes/ns together. The choice is
    /// that of the machine's own rate.
    [[nodiscard]] double ns_at(size_t bytes, double far_bytes_per_ns);
    /// The same with a host that is slow.
    [[nodiscard]] double ns_beside(size_t bytes, const algorithms::SlowHost &slow);

  private:
    [[nodiscard]] double ns_of(const Choice &choice, size_t bytes, const algorithms::CostModel &costs,
                               const algorithms::Fabric &fabric, Outcome &outcome);
    [[nodiscard]] double ns_at_once(const Choice &choice, size_t bytes, const algorithms::CostModel &costs,
                                    const algorithms::Fabric &fabric, Outcome &outcome);
    [[nodiscard]] double lasting_rate(Way way, double message) const;

    const Machine &machine_;
    algorithms::Collective collective_;
    algorithms::Placement placement_;
    std::unique_ptr<Planner> planner_;
    std::map<const algorithms::Algorithm *, std::unique_ptr<algorithms::StepGraph>> graphs_;
};

/// Whether each rank has a block of the vector.
bool has_blocks(algorithms::Collective collective);
/// The sizes of which there can be a call on so many ranks: blocks of ranks have a byte or more. A barrier has one.
std::vector<size_t> sizes_of(algorithms::Collective collective, const std::vector<size_t> &sizes, int ranks);
/// How many cells run_all() makes.
size_t cells_of(const Machine &machine, const std::vector<algorithms::Collective> &collectives,
                const std::vector<size_t> &sizes);
/// Cells of one collective on one machine, which must outlive them.
struct Asked {
    const Machine *machine = nullptr;
    algorithms::Collective collective = algorithms::Collective::allreduce;
    struct Call {
        size_t bytes = 0;
        bool steps = false;  ///< as Experiment::cell() has it
    };
    std::vector<Call> calls;
};
/// The cells of each, by `threads` threads; 0: as many as there are processors. `done` is called by one thread at a
/// time with the number of cells that are ready. What a thread throws, this throws.
std::vector<std::vector<Cell>> run_rows(const std::vector<Asked> &asked, const std::function<void(size_t)> &done,
                                        size_t threads = 0);
/// All cells of which there can be a call, collectives after each other and sizes as given, as run_rows() makes them.
std::vector<Cell> run_all(const Machine &machine, const std::vector<algorithms::Collective> &collectives,
                          const std::vector<size_t> &sizes, const std::function<void(size_t)> &done,
                          size_t threads = 0);

}  // namespace flx::simulate

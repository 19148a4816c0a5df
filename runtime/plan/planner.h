/// \file planner.h
/// Picks the algorithm of an operation from what is equal on all ranks, and keeps the plans that were made.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "algorithms/cost/predict.h"
#include "runtime/base/status.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/rules.h"
#include "runtime/plan/ways.h"

namespace flx {

/// A network of no special speed, by which it is chosen in which order sums are added: bits must not depend on what was
/// measured.
algorithms::CostModel nominal_costs();

/// What all ranks of a communicator know alike.
struct Agreed {
    int size = 1;
    int hosts = 1;
    algorithms::Placement placement = {};  ///< of all ranks; empty: not known
    algorithms::CostModel costs = nominal_costs();
    size_t fused_bytes = 0;      ///< largest input of the fused shared-memory path; 0 between hosts
    size_t staged_bytes = 0;     ///< likewise, of the ranks of each of several hosts (staged.h); 0 on one host
    bool shared_memory = false;  ///< whether fused and streamed exist; if not, `direct` stands in with the same bits
    bool peer_memory = false;    ///< with shared_memory: ranks can read each other (runtime/shm/ways/peer_memory.h)
    bool strict = false;
    bool part = false;             ///< of the program's ranks; where rules were not written for this communicator alone
    shm::Ways ways = shm::Ways();  ///< with shared_memory
};

/// How an operation is carried out: by shared memory as a whole (fused.h, stream.h and peer_memory.h in
/// runtime/shm/ways), by a plan over links, as messages between pairs of ranks over links
/// (runtime/execute/exchange.h), or stage by stage (staged.h).
enum class Way : uint8_t { fused, streamed, fetched, scheduled, exchanged, staged };

/// An algorithm's name says more of those that follow a schedule.
constexpr const char *name_of(Way way) {
    switch (way) {
        case Way::fused:
            return "fused";
        case Way::streamed:
            return "streamed";
        case Way::fetched:
            return "fetched";
        case Way::scheduled:
            return "scheduled";
        case Way::exchanged:
            return "exchange";
        case Way::staged:
            return "staged";
    }
    return "";
}

constexpr Way way_of(shm::Way way) {
    return way == shm::Way::fused ? Way::fused : way == shm::Way::streamed ? Way::streamed : Way::fetched;
}

struct Choice {
    Way way = Way::scheduled;
    const algorithms::Algorithm *algorithm = nullptr;  ///< scheduled; staged: as staged_name() has it
    bool by_table = false;                             ///< Agreed::ways said so, and may say something else later
    // Of messages whose lengths only their ends know, staged: bytes of the longest that leaders carry for their hosts,
    // and of the longest that ranks collect for other hosts' ranks, which is no less.
    size_t by_leaders = 0;
    size_t by_lanes = 0;
    [[nodiscard]] const char *name() const;
};

/// What a call asks of the way that it is carried out. Equal on all ranks.
struct Needs {
    bool steps = false;     ///< one that goes step by step: non-blocking, or what fused and streamed do not know
    bool in_order = false;  ///< of a reduction that does not commute: contributions in rank order
    size_t longest = 0;     ///< allgatherv: bytes of the longest block; reduce_scatter: of what one host's ranks get
};

class Planner {
  public:
    /// `overrides`: FLX_ALGORITHM (rules.h; files were read before). Of rules for one size the last one holds. Names
    /// are those of algorithms, and on one host `fused`, `streamed`, `fetched` and `exchange`, where the collective has
    /// them. FLX_ERR_CONFIG for names that are not known or do not serve the collective. A rule that another
    /// communicator could follow is left out of one that has a part of the ranks, and rank 0 says so, once in a
    /// process.
    static Status make(int rank, const Agreed &agreed, const std::string &overrides, std::unique_ptr<Planner> &result);

    /// `bytes`: of the whole vector (allgather, reduce_scatter_block: all blocks).
    [[nodiscard]] Choice choose(algorithms::Collective collective, size_t bytes, const Needs &needs = {}) const;
    /// How FLX_ALGORITHM calls what is chosen. Of messages whose lengths only their ends know: for equally long ones.
    [[nodiscard]] const char *name(algorithms::Collective collective, size_t bytes, const Needs &needs = {}) const;
    /// Sets the ways for all choices from the next one on: the same on all ranks, between the same calls.
    void set_ways(const shm::Ways &ways) { agreed_.ways = ways; }
    /// What could carry it out over links between hosts, and the time that each is expected to take, by the measured
    /// costs; least first. Empty where that does not decide.
    struct Candidate {
        Choice choice;
        double ns;
    };
    [[nodiscard]] std::vector<Candidate> candidates(algorithms::Collective collective, size_t bytes) const;
    /// The same where something else decides, too: then without times, which are 0.
    [[nodiscard]] std::vector<Candidate> all_candidates(algorithms::Collective collective, size_t bytes) const;
    /// The plan of `choice`, made at first use.
    const Plan &plan(algorithms::Collective called, const Choice &choice, int root);
    /// The plan of an algorithm among some of the ranks, this one among them; made at first use. `root`: index among
    /// them.
    const Plan &plan_among(const algorithms::Algorithm &algorithm, algorithms::Collective collective,
                           const std::vector<int> &group, int root);
    /// Of all ranks; empty: not known.
    [[nodiscard]] const algorithms::Placement &placement() const { return agreed_.placement; }

  private:
    struct Forced {
        Rule rule;
        Choice choice;
    };

    Status force(const Rule &rule);
    /// What the user wants; null: nothing.
    [[nodiscard]] const Choice *forced(algorithms::Collective collective, size_t bytes) const;
    [[nodiscard]] bool fits_fused(algorithms::Collective collective, size_t bytes, const Needs &needs) const;
    [[nodiscard]] Choice by_shared_way(algorithms::Collective collective, size_t bytes) const;
    /// What takes the least expected time.
    [[nodiscard]] Choice cheapest(algorithms::Collective collective, size_t bytes, bool steps) const;
    [[nodiscard]] std::string_view cheapest_flat(algorithms::Collective collective, size_t bytes) const;
    [[nodiscard]] Choice predict(algorithms::Collective collective, size_t bytes, bool steps) const;
    /// What is made is kept for the class of sizes; what throws leaves nothing behind.
    template <typename Make>
    Choice once(algorithms::Collective collective, size_t bytes, bool stages, const Make &make) const;
    [[nodiscard]] Choice least_of(algorithms::Collective collective, size_t bytes, bool stages) const;
    struct Reckoned {
        std::vector<Candidate> measured;
        std::vector<Candidate> nominal;  ///< of what adds: by nominal costs
    };
    [[nodiscard]] Reckoned reckon(algorithms::Collective collective, size_t bytes) const;
    /// What reckon() said of the class of sizes; what throws leaves nothing behind.
    [[nodiscard]] const Reckoned &reckoned(algorithms::Collective collective, size_t bytes) const;
    void add_loaded(algorithms::Collective collective, size_t bytes, std::vector<Candidate> &result) const;
    [[nodiscard]] bool may_stage(algorithms::Collective collective, size_t bytes) const;
    [[nodiscard]] Choice choose_exchange(algorithms::Collective collective, size_t bytes, const Needs &needs) const;
    [[nodiscard]] Choice choose_by_hosts(algorithms::Collective collective) const;
    [[nodiscard]] double exchange_ns(algorithms::Collective collective, size_t bytes) const;
    [[nodiscard]] const algorithms::Algorithm *adds_alike(const algorithms::Algorithm &algorithm,
                                                          algorithms::Collective collective) const;
    [[nodiscard]] Choice by_schedule(algorithms::Collective collective, size_t bytes, const Needs &needs) const;

    struct Kept {
        algorithms::Collective collective;
        int root;
        std::vector<int> group;  ///< empty: all ranks
        std::unique_ptr<Plan> plan;
    };

    int rank_ = 0;
    Agreed agreed_;
    std::vector<Forced> forced_;
    std::vector<Kept> kept_;
    mutable std::map<std::pair<algorithms::Collective, int>, Reckoned> reckoned_;
    /// What predict() said, by collective, class of sizes, and whether it may go stage by stage.
    mutable std::map<std::tuple<algorithms::Collective, int, bool>, Choice> predicted_;
};

}  // namespace flx

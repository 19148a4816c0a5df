/// \file simulation.h
/// Private to the verifier: executes the schedules of all ranks on symbolic memory, with random interleaving.
///
/// How links are modelled (runtime/link/link.h): each ordered pair of ranks has one to three lanes, each a FIFO that
/// holds at most `Trial::window` chunks until the receiver has consumed all their cells. The sender cuts each step's
/// cells at random among the lanes, as a partition vector of its own would. On each lane a step's cells go out in
/// ascending order; where no rank gathers, some seeds send them in any order. A chunk is either copied (its send is
/// done at once) or in flight (done when the chunk was consumed whole; until a cell was consumed, its source must not
/// be written).
#pragma once

#include <string>
#include <vector>

#include "algorithms/expression.h"
#include "algorithms/verifier.h"

namespace flx::algorithms {

/// What an element of memory holds: an expression, and which element of the whole vector it is about.
struct Symbol {
    ExpressionId expression = kNothing;
    uint32_t element = 0;
};

/// Where the receive of a send is: step of the peer, and which of a gather's ranks this one is (0 for others).
struct Match {
    uint32_t step = 0;
    uint32_t source = 0;
};

/// One execution. The schedules are checked before (see verifier.cpp), so that each send has its match.
class Simulation {
  public:
    /// `matches[rank][step]` for sends. `expressions` may be shared by several runs. References must outlive this.
    Simulation(const std::vector<Schedule> &schedules, const std::vector<std::vector<Match>> &matches,
               Collective collective, int root, const Trial &trial, Expressions &expressions);

    /// Runs to the end. Empty, or a sentence that says what went wrong.
    std::string run();

    /// Elements of the whole vector.
    [[nodiscard]] size_t count() const { return count_; }
    /// The extent of a block in the whole vector.
    [[nodiscard]] Extent extent(uint32_t block) const;
    /// This rank's output memory; empty where the rank has none. Layout as the schedule's `output`.
    [[nodiscard]] std::vector<Symbol> output(int rank) const;

  private:
    struct Element {
        Symbol symbol;
        uint32_t pins = 0;  ///< chunks in flight that were sent from here and not consumed
    };
    struct Chunk {
        uint32_t step = 0;  ///< the sender's
        int sender = 0;
        int receiver = 0;
        uint32_t lane = 0;
        uint32_t first = 0;
        uint32_t cells = 0;
        uint32_t unconsumed = 0;
        bool in_flight = false;
        bool aside = false;  ///< the receiver has copied it
        std::vector<Symbol> data;
    };
    struct StepState {
        uint32_t cells = 0;
        uint32_t left = 0;  ///< cells not done
        size_t length = 0;  ///< elements
        size_t from = 0;    ///< index in the rank's memory
        size_t to = 0;
        size_t flags = 0;     ///< index in Rank::done and Rank::sent
        size_t arrivals = 0;  ///< index in Rank::arrived: source by source, cell by cell
        uint32_t cut[4] = {};
    };
    struct Rank {
        std::vector<Element> memory;
        size_t input = 0;
        size_t output = 0;
        size_t output_count = 0;
        std::vector<StepState> steps;
        std::vector<uint8_t> done;
        std::vector<uint8_t> sent;
        std::vector<int32_t> arrived;  ///< chunk, or -1
        std::vector<uint32_t> active;  ///< steps that are not done
    };

    void lay_out(int index);
    [[nodiscard]] size_t address(const Rank &rank, const Schedule &schedule, const Place &place, uint32_t block,
                                 size_t scratch) const;
    bool visit(int index, bool thorough);
    bool advance(int index, uint32_t number);
    bool advance_send(int index, uint32_t number);
    [[nodiscard]] bool ready(const Rank &rank, const Step &step, const StepState &state, uint32_t cell) const;
    void post(int sender, uint32_t number, uint32_t lane, uint32_t first, uint32_t cells);
    void process(int index, uint32_t number, uint32_t cell);
    void consume(int32_t id, uint32_t cell);
    void release(Chunk &chunk);
    bool set_aside();
    void write(int rank, uint32_t step, size_t address, Symbol symbol);
    Symbol reduced(int rank, uint32_t step, Symbol left, Symbol right);
    void finish_cell(Rank &rank, uint32_t step, uint32_t cell);
    void fail(int rank, uint32_t step, const std::string &what);
    [[nodiscard]] std::string stuck() const;
    uint32_t random(uint32_t below);

    const std::vector<Schedule> &schedules_;
    const std::vector<std::vector<Match>> &matches_;
    Collective collective_;
    int root_;
    Trial trial_;
    Expressions &expressions_;
    int size_;
    size_t count_;
    size_t longest_ = 0;  // block
    uint64_t state_;
    uint32_t lanes_ = 1;
    bool any_order_ = false;
    uint32_t copied_of_four_ = 0;  ///< how many chunks of four are copied
    int late_ = -1;                ///< a rank that mostly does nothing while the others go on
    std::vector<Rank> ranks_;
    std::vector<uint32_t> outstanding_;  ///< chunks on a lane of an ordered pair
    std::vector<Chunk> chunks_;
    std::vector<int32_t> free_chunks_;
    std::string error_;
};

/// `rank 3, step 7 (recv_reduce, phase 0, block 2, peer 1)`.
std::string describe(int rank, uint32_t index, const Step &step);

}  // namespace flx::algorithms

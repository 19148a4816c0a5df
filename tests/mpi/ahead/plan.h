/// \file plan.h
/// Random programs of collectives and messages. From a seed every rank makes the same episodes, in which runs of
/// operations whose data flows one way let some ranks be many operations ahead of others, and operations for which all
/// wait follow. Plain data: who carries an episode out is runner.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace flx::test::ahead {

enum class Collective : uint8_t {
    barrier,
    bcast,
    scatter,
    scatterv,
    reduce,
    gather,
    gatherv,
    message,  ///< from `root` to `peer`; no other rank calls
    scan,
    exscan,
    allreduce,
    reduce_scatter_block,
    reduce_scatter,
    allgather,
    allgatherv,
    alltoall,
    alltoallv,
    shift  ///< each rank sends to the one `peer` further and receives from the one as far before
};
inline constexpr int kCollectives = 18;
const char *name_of(Collective collective);
bool reduces(Collective collective);

enum class Type : uint8_t { u8, i16, i32, u64, f32, f64 };
inline constexpr int kTypes = 6;
size_t size_of(Type type);

/// `compose` is the program's own: it takes u64 as two numbers of 32 bits and does not commute.
enum class Reduction : uint8_t { sum, min, max, bxor, avg, compose };
inline constexpr int kReductions = 6;

enum class Manner : uint8_t { blocking, non_blocking, persistent, grouped };

/// Who may be milliseconds late for an operation; each of them draws whether it is, and how late.
enum class Lateness : uint8_t { none, root, others, any };

struct Operation {
    uint64_t number = 0;  ///< among all of the program; its data follow from it
    Collective collective = Collective::barrier;
    Type type = Type::u8;
    Reduction reduction = Reduction::sum;
    Manner manner = Manner::blocking;
    bool in_place = false;
    Lateness lateness = Lateness::none;
    uint64_t again = 0;    ///< persistent: the number of the operation whose request is started once more; 0: a new one
    uint32_t bracket = 0;  ///< grouped: those of one number stand side by side and are one group
    size_t group = 0;      ///< index of the group of ranks that calls
    int root = 0;
    int peer = 0;
    /// Elements: of the vector or one rank's block; by rank where lengths are given; alltoallv: [from · size + to].
    std::vector<size_t> counts;
};
std::string to_string(const Operation &operation);

/// Ranks of the world, in the group's own order. A split makes several at once.
struct Group {
    std::vector<int> ranks;
    size_t split = 0;   ///< groups of one number come from one split
    size_t weight = 1;  ///< how often it is drawn
};
/// The world, its duplicate, the world backwards, rows and columns, and a part of the world that `seed` chooses.
std::vector<Group> make_groups(int world_size, uint64_t seed);

enum class Memory : uint8_t { own, shared, mixed };

struct Episode {
    uint64_t index = 0;
    uint64_t seed = 0;  ///< of what ranks draw by themselves
    Memory memory = Memory::own;
    size_t in_flight = 1;  ///< how many may be under way
    std::vector<Operation> operations;
};

/// What makes the program, but for the ranks.
struct Choice {
    uint64_t seed = 1;
    int thread = 0;
    size_t longest = size_t{1} << 20;  ///< bytes of what one rank gives or gets
    bool average = true;               ///< the reduction exists
    bool short_sums = true;            ///< sums of one and two bytes wrap
    bool unsigned_extremes = true;     ///< unsigned numbers are compared as such
    bool pending = true;               ///< collectives need not block
    bool groups = true;                ///< calls can be grouped
    bool messages_in_flight = false;   ///< messages need not block, where they are not grouped
};

/// Operations have numbers from `first_number` on.
Episode make_episode(const Choice &choice, const std::vector<Group> &groups, uint64_t index, uint64_t first_number);
/// An episode has fewer operations.
inline constexpr uint64_t kMostOperations = 4096;

/// That of repetition `repetition` of an episode: no two operations of a program have one number.
constexpr uint64_t first_number_of(uint64_t episode, uint64_t repetition) {
    return 1 + (repetition << 40U) + episode * kMostOperations;
}

}  // namespace flx::test::ahead

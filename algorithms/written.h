/// \file written.h
/// Schedules that no function makes: the steps of each rank as data, as a file has them. Plain data and pure functions,
/// thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/registry.h"

namespace flx::algorithms {

struct Written {
    std::string name;         ///< as choices are called
    std::string description;  ///< one line
    std::string source;       ///< what it comes from
    Collective collective = Collective::allreduce;
    BitClass bits = BitClass::none;  ///< none, rank_order, ring, chain or doubling, which prove() holds it to; or own
    int root = 0;                    ///< for which the schedules are
    /// By rank, any numbers that are equal for ranks of one host: the only placement that they are for. Empty: any.
    std::vector<int> host_of;
    std::vector<Schedule> schedules;  ///< by rank
    uint64_t identity = 0;            ///< a hash of what it was read from; of no index in all()

    [[nodiscard]] int size() const { return static_cast<int>(schedules.size()); }
};

/// The schedule of a rank. Where the root is another one than it was written for, ranks go round, and with them blocks
/// that are ranks' own: what the written root does, that one does, and its successor what the successor did.
Schedule schedule_of(const Written &written, int rank, int root);

/// Executes it symbolically (verifier.h), in place and not, with cells of one length and of several, blocks of given
/// lengths where its collective has them, and little room; and proves that what may be sent again stays intact. Empty,
/// or a sentence that names the first rank and step, or element of an output, that is wrong.
std::string prove(const Written &written);

/// What an algorithm's function makes for all ranks, as data; its name is the algorithm's, without brackets and commas.
/// Requires that it serves the collective. `placement`: as Request's; it is kept where the algorithm looks at it.
Written written_of(const Algorithm &algorithm, Collective collective, int size, int root, const Placement *placement);

/// The algorithm that has these schedules, which must outlive it.
Algorithm algorithm_of(const Written &written);

/// Whether its sums are held to the order that the class says (prove).
bool can_be_proved(BitClass bits);

/// Steps of all ranks.
size_t steps_of(const Written &written);

}  // namespace flx::algorithms

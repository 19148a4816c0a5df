/// \file staged.h
/// Which operations between hosts can go stage by stage: the ranks of a host do the first and the last stage through
/// shared memory as a whole (runtime/shm/ways/fused.h), and some of them the one in between, over rails, where what a
/// host has for another is one message. The sums are those of the schedule that has the same stages
/// (algorithms/tiers.h), so the bits are. Pure functions.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "algorithms/cost/predict.h"
#include "algorithms/placement.h"
#include "algorithms/registry.h"

namespace flx {

/// The most that a rank may show its host at once.
inline constexpr size_t kStagedBytes = size_t{256} << 10;

/// The name of what goes stage by stage, as in FLX_ALGORITHM: that of the algorithm with `fused` for what it does
/// within hosts. An alltoall goes by leaders, with the messages of `direct` or in Bruck's rounds between them, or by
/// lanes: then `algorithm` is null, or Bruck's, and each rank collects its host's messages for the ranks of other hosts
/// that have its index.
const char *staged_name(const algorithms::Algorithm *algorithm);
/// Whether `name` is such a name for the collective. `algorithm`: as above.
bool find_staged(std::string_view name, algorithms::Collective collective, const algorithms::Algorithm *&algorithm);
/// All algorithms whose stages can be carried out one by one for the collective.
const std::vector<const algorithms::Algorithm *> &staged(algorithms::Collective collective);

/// Whether the collective is messages of lengths that only their ends know and that hosts can send as one: alltoallv,
/// gatherv and scatterv. Which one it would be if all were equally long.
bool may_stage_messages(algorithms::Collective collective);
algorithms::Collective equal_blocks_of(algorithms::Collective collective);
/// What a rank shows of messages of up to `longest` bytes to its host, and a leader to its ranks.
size_t shown_messages(algorithms::Collective collective, const algorithms::Placement &placement, size_t longest);
size_t dealt_messages(algorithms::Collective collective, const algorithms::Placement &placement, size_t longest);
/// Bytes of the longest such messages for which there is room within a host (`payload`), of 64, twice that, and so
/// on. 0: there is none. `algorithm`: as above.
size_t longest_staged(algorithms::Collective collective, const algorithms::Algorithm *algorithm,
                      const algorithms::Placement &placement, size_t payload);

/// Whether what a rank shows to its host has room. `bytes`: of the whole vector; `payload`: that room. Messages are
/// taken to be equally long.
bool fits_staged(algorithms::Collective collective, const algorithms::Algorithm *algorithm, size_t bytes,
                 const algorithms::Placement &placement, size_t payload);

/// Expected time, as algorithms::predict_ns. Ranks know no fabric; simulations have one. `report`: of what goes between
/// hosts, bytes, and those of the longest message; null: not asked for.
double predict_staged_ns(algorithms::Collective collective, const algorithms::Algorithm *algorithm, size_t bytes,
                         const algorithms::Placement &placement, const algorithms::CostModel &costs,
                         const algorithms::Fabric &fabric = {}, algorithms::WalkReport *report = nullptr);
/// The same of an alltoall of messages between all pairs of ranks.
double predict_exchange_ns(size_t bytes, const algorithms::Placement &placement, const algorithms::CostModel &costs,
                           const algorithms::Fabric &fabric = {}, algorithms::WalkReport *report = nullptr);

}  // namespace flx

/// \file arrivals.h
/// Messages that come when they come, as KV caches do that one set of ranks fills and another decodes from: random
/// sizes at random times (a Poisson process) between random ranks. Pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "apps/bench/machine.h"
#include "apps/flx_lab/options.h"

namespace flx::bench::lab {

/// One message.
struct Arrived {
    double seconds = 0;  ///< when it is there to be sent, since the trace began
    uint64_t bytes = 0;
    int from = 0;  ///< of the first half of the ranks
    int to = 0;    ///< of the second half
};

/// `options.arrivals` messages a second on average, of the whole program; their sizes lie between the smallest and the
/// largest of `options.sizes`, evenly on a logarithmic scale, in whole pages where they have one. In order of time. The
/// same on every machine for the same options. `ranks` ≥ 2.
[[nodiscard]] std::vector<Arrived> arrivals_of(const Options &options, int ranks);

/// How often each way takes its turn with a part of the trace.
inline constexpr int kArrivalRounds = 2;
/// The messages of round `round`, with times that begin at 0.
[[nodiscard]] std::vector<Arrived> round_of(const std::vector<Arrived> &trace, int round);

/// One way of carrying them: a value of FLX_LEND.
struct ArrivalsWay {
    std::string lend;
    std::vector<double> seconds;  ///< by message: from when it was there until the receiver had it
    uint64_t wrong = 0;           ///< pages
};

struct ArrivalsResult {
    Machine machine;
    std::vector<Arrived> trace;
    ArrivalsWay bound;  ///< FLX_LEND=own: every rank uses its own rail only
    ArrivalsWay lent;   ///< as the environment has it
};

[[nodiscard]] std::string arrivals_text(const Options &options, const ArrivalsResult &result);
[[nodiscard]] nlohmann::ordered_json arrivals_json(const Options &options, const ArrivalsResult &result);

}  // namespace flx::bench::lab

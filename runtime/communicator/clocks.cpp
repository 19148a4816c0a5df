/// How far the clock of this rank's host is ahead of that of rank 0's, for traces: when a communicator is made, and
/// when it is freed, so that what the clocks drift meanwhile is known, too.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/communicator/communicator.h"

namespace flx {

using algorithms::Collective;

/// Collective where all ranks are to trace, also where one of them cannot. No rank leaves a barrier before all have
/// entered it: each one is a bound on both sides, of which the narrowest count.
Status Communicator::compare_clocks() {
    if (knobs_.all.text("FLX_TRACE").empty() || layout_.hosts == 1)
        return {};
    constexpr size_t kRounds = 48;
    struct Round {
        int64_t entered_ns = 0;
        int64_t left_ns = 0;
    };
    using Rounds = std::array<Round, kRounds>;
    Rounds mine;
    for (Round &round : mine) {
        round.entered_ns = now_ns();
        FLX_TRY(pass_barrier());
        round.left_ns = now_ns();
    }
    std::vector<Rounds> all(static_cast<size_t>(layout_.size));
    Call call;
    Operation &exchange = call.operation;
    exchange.collective = Collective::allgather;
    exchange.in = mine.data();
    exchange.out = all.data();
    exchange.count = sizeof(Rounds) * all.size();
    exchange.dtype = FLX_UINT8;
    FLX_TRY(run_now(call, decisions_.decide(call)));
    int64_t least = INT64_MIN, most = INT64_MAX;
    for (size_t i = 0; i < kRounds; ++i) {
        least = std::max(least, mine[i].entered_ns - all[0][i].left_ns);
        most = std::min(most, mine[i].left_ns - all[0][i].entered_ns);
    }
    recorded_.recorder->clock(recorded_.place, least + (most - least) / 2, std::max<int64_t>(most - least, 0) / 2);
    return {};
}

}  // namespace flx

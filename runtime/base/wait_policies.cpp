#include "runtime/base/wait_policies.h"

#include <algorithm>

#include "runtime/base/core_share.h"

namespace flx {

/// Whoever shares its cores with other ranks must not spin while one of them has work.
void WaitPolicies::set(int64_t spin_us, int64_t sleep_us, bool crowded) {
    constexpr int kPausesPerUs = 20;
    // Where others need the core, a rank that has yielded for a while is not expected soon.
    constexpr int64_t kSleepAfterUs = 5000;
    constexpr int64_t kCrowdedSleepAfterUs = 1000;
    constexpr int64_t kNsPerUs = 1000;
    const auto set = [&](WaitPolicy &policy, bool shares) {
        if (spin_us >= 0)
            policy.spins = static_cast<int>(spin_us * kPausesPerUs);
        else if (shares)
            policy.spins = 0;
        policy.alone = policy.spins > 0 && !shares;
        policy.sleep_after_ns = kNsPerUs * (sleep_us >= 0 ? sleep_us : shares ? kCrowdedSleepAfterUs : kSleepAfterUs);
    };
    set(own_, crowded);
    set(shared_, true);
    contested_ = shared_;
}

/// Others that want the core may be those that this rank waits for. To who gives it back in a moment it yields at once.
/// To who keeps it, it does not yield where a wait is over soon, as it would get the core back after milliseconds.
void WaitPolicies::over_rails() {
    constexpr int kPausesPerTurn = 64;
    constexpr int kPart = 4;
    over_rails_ = true;
    if (own_.spins > 0)
        own_.spins = std::max(1, own_.spins / kPausesPerTurn);
    contested_ = shared_;
    contested_.spins = own_.spins / kPart;
}

const WaitPolicy &WaitPolicies::ordinary() const {
    return over_rails_ && core_use() != CoreUse::alone ? shared_ : brief();
}

/// On one host waits are so short that to yield to a neighbour's noise costs more than to spin.
void WaitPolicies::outlasted() {
    const CoreUse use = core_use();
    brief_ = use == CoreUse::in_turns ? &shared_ : use == CoreUse::contested && over_rails_ ? &contested_ : &own_;
}

}  // namespace flx

/// \file wait_policies.h
/// Which policy a wait follows: whether this rank has its core to itself is known only from time to time.
#pragma once

#include <cstdint>

#include "runtime/base/wait.h"

namespace flx {

class WaitPolicies {
  public:
    /// `spin_us`, `sleep_us`: FLX_SPIN_US and FLX_SLEEP_US, negative where they are FLX's choice. `crowded`: there are
    /// more ranks than cores.
    void set(int64_t spin_us, int64_t sleep_us, bool crowded);
    /// Waits look at rails, too, from now on: a turn of one takes a microsecond or more instead of a pause.
    void over_rails();
    /// The policy of trials and of whatever comes before the communicator is used.
    [[nodiscard]] const WaitPolicy &first() const { return own_; }
    /// The policy of brief waits.
    [[nodiscard]] const WaitPolicy &brief() const { return *brief_; }
    /// The policy of waits that may take long over rails. It costs nothing there to find out first who else wants the
    /// core, and to yield to them for a moment is worth more than to spin.
    [[nodiscard]] const WaitPolicy &ordinary() const;
    /// A wait has lasted for longer than it may spin: whether others want the core is asked for the next ones. Who
    /// never waits for so long does not ask.
    void outlasted();

  private:
    WaitPolicy own_;
    WaitPolicy shared_;     ///< the same where others want this thread's core
    WaitPolicy contested_;  ///< for what is brief, where they keep it for long
    const WaitPolicy *brief_ = &own_;
    bool over_rails_ = false;
};

}  // namespace flx

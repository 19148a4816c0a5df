/// \file progress.h
/// A progress bar for the programs in apps/.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace flx::apps {

/// True if a person watches this process's standard error on a terminal. Under `mpirun` a rank's standard error is a
/// pipe to the launcher, so the launcher's is looked at; on other hosts than the launcher's that says no.
bool stderr_is_watched();

/// Draws `label [=====>    ] 42 %  0:03` on standard error and redraws it in place, at most ten times a second. Does
/// nothing where nobody watches, and nothing where `shown` is false (all ranks but one). Not thread safe.
class Progress {
  public:
    Progress(std::string label, std::size_t total, bool shown = true);
    ~Progress() { finish(); }
    Progress(const Progress &) = delete;
    Progress &operator=(const Progress &) = delete;

    /// `done` of `total` steps are complete.
    void update(std::size_t done);

    /// Clears the bar, so that a line can be printed; a later update() draws it again.
    void clear();

    /// Clears the bar for good.
    void finish();

  private:
    using Clock = std::chrono::steady_clock;

    std::string label_;
    std::size_t total_;
    bool active_;
    bool drawn_ = false;
    Clock::time_point start_;
    Clock::time_point last_;
};

}  // namespace flx::apps

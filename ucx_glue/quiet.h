/// \file quiet.h
/// Keeps UCX's own lines about FLX's rails out of the program's output: what they report arrives as a link error, which
/// FLX logs once. They stay readable at FLX_LOG=debug. UCX's lines about others (MPI's use of it) are left alone.
#pragma once

namespace flx::ucx {

/// While one lives, UCX's log lines of this thread go to FLX's log, at level debug. Nests. A few nanoseconds.
class Quiet {
  public:
    Quiet() { ++depth_; }
    ~Quiet() { --depth_; }
    Quiet(const Quiet &) = delete;
    Quiet &operator=(const Quiet &) = delete;

    [[nodiscard]] static bool active() { return depth_ != 0; }

  private:
    static inline thread_local int depth_ = 0;
};

/// Makes Quiet work. Idempotent, thread-safe.
void install_quiet();

}  // namespace flx::ucx

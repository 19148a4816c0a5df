#include "runtime/base/core_share.h"

#include <fcntl.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>

#include "runtime/base/clock.h"

namespace flx {

namespace {

/// The calling thread's times, by the kernel.
class ThreadTimes {
  public:
    ThreadTimes() : file_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}
    ~ThreadTimes() {
        if (file_ >= 0)
            close(file_);
    }
    ThreadTimes(const ThreadTimes &) = delete;
    ThreadTimes &operator=(const ThreadTimes &) = delete;

    bool read(int64_t &ran_ns, int64_t &waited_ns, int64_t &turns) const {
        char text[96];
        const ssize_t length = file_ < 0 ? -1 : pread(file_, text, sizeof text - 1, 0);
        if (length <= 0)
            return false;
        text[length] = '\0';
        return std::sscanf(text, "%" SCNd64 " %" SCNd64 " %" SCNd64, &ran_ns, &waited_ns, &turns) == 3;
    }

  private:
    const int file_;
};

}  // namespace

void CoreShare::add(int64_t ran_ns, int64_t waited_ns, int64_t turns) {
    const int64_t ran = ran_ns - ran_ns_;
    const int64_t waited = waited_ns - waited_ns_;
    if (begun_ && ran + waited < kStretchNs)
        return;
    const int64_t more_turns = turns - turns_;
    ran_ns_ = ran_ns;
    waited_ns_ = waited_ns;
    turns_ = turns;
    if (!begun_) {
        begun_ = true;
        return;
    }
    const double part = static_cast<double>(waited) / static_cast<double>(ran + waited);
    calm_ = part < kCalm ? calm_ + 1 : 0;
    shared_ = part > kShared || (shared_ && calm_ < kCalmStretches);
    in_turns_ = part > (in_turns_ ? kShared : kInTurns) && waited < kMomentNs * more_turns;
}

CoreUse core_use() {
    constexpr int64_t kGapNs = 10'000'000;
    thread_local const ThreadTimes times;
    thread_local CoreShare share;
    thread_local int64_t next_ns = 0;
    const int64_t now = now_ns();
    if (now >= next_ns) {
        next_ns = now + kGapNs;
        int64_t ran = 0;
        int64_t waited = 0;
        int64_t turns = 0;
        if (times.read(ran, waited, turns))
            share.add(ran, waited, turns);
    }
    return share.use();
}

}  // namespace flx

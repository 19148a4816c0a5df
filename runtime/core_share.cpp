#include "core_share.h"

#include <fcntl.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>

#include "telemetry.h"

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

    bool read(int64_t &ran_ns, int64_t &waited_ns) const {
        char text[96];
        const ssize_t length = file_ < 0 ? -1 : pread(file_, text, sizeof text - 1, 0);
        if (length <= 0)
            return false;
        text[length] = '\0';
        return std::sscanf(text, "%" SCNd64 " %" SCNd64, &ran_ns, &waited_ns) == 2;
    }

  private:
    const int file_;
};

}  // namespace

void CoreShare::add(int64_t ran_ns, int64_t waited_ns) {
    const int64_t ran = ran_ns - ran_ns_;
    const int64_t waited = waited_ns - waited_ns_;
    if (begun_ && ran + waited < kStretchNs)
        return;
    ran_ns_ = ran_ns;
    waited_ns_ = waited_ns;
    if (!begun_) {
        begun_ = true;
        return;
    }
    const double part = static_cast<double>(waited) / static_cast<double>(ran + waited);
    calm_ = part < kCalm ? calm_ + 1 : 0;
    shared_ = part > kShared || (shared_ && calm_ < kCalmStretches);
}

bool shares_core() {
    constexpr int64_t kGapNs = 10'000'000;
    thread_local const ThreadTimes times;
    thread_local CoreShare share;
    thread_local int64_t next_ns = 0;
    const int64_t now = now_ns();
    if (now >= next_ns) {
        next_ns = now + kGapNs;
        int64_t ran = 0;
        int64_t waited = 0;
        if (times.read(ran, waited))
            share.add(ran, waited);
    }
    return share.shared();
}

}  // namespace flx

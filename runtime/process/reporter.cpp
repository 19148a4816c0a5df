#include "runtime/process/reporter.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <system_error>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/own_thread.h"
#include "runtime/record/hang_report.h"

namespace flx {
namespace {

/// Who is told of the signal; null: nobody.
std::atomic<Liveness *> signalled{nullptr};
std::atomic<int> handlers_running{0};

void on_signal(int) {
    const int error = errno;
    handlers_running.fetch_add(1);
    if (Liveness *liveness = signalled.load())
        liveness->nudge();
    handlers_running.fetch_sub(1);
    errno = error;
}

/// Once in a process. The handler stays when FLX has gone, as the signal would end the process otherwise.
void take_signal() {
    static const bool taken = [] {
        struct sigaction found {};
        if (sigaction(SIGUSR1, nullptr, &found) != 0 || (found.sa_flags & SA_SIGINFO) != 0 ||
            found.sa_handler != SIG_DFL)
            return false;
        struct sigaction ours {};
        ours.sa_handler = on_signal;
        ours.sa_flags = SA_RESTART;
        sigemptyset(&ours.sa_mask);
        return sigaction(SIGUSR1, &ours, nullptr) == 0;
    }();
    static_cast<void>(taken);
}

void print(const std::string &why, const std::vector<record::ProcessSeen> &now,
           const std::vector<record::ProcessSeen> &before) {
    for (const std::string &line : record::hang_report(why, now, before))
        log().warn("report: {}", line);
}

std::vector<record::ProcessSeen> own_job() {
    return record::job_of(getpid(), record::read_all(getuid()));
}

}  // namespace

Reporter::Reporter(Liveness &liveness, record::Recorder &recorder) : liveness_(liveness), recorder_(recorder) {
    liveness_.on_nudge([this] { begin(); });
    signalled.store(&liveness_);
    take_signal();
}

Reporter::~Reporter() {
    Liveness *own = &liveness_;
    signalled.compare_exchange_strong(own, nullptr);
    while (handlers_running.load() != 0)
        std::this_thread::yield();
    liveness_.on_nudge({});
    ending_.store(true);
    const std::lock_guard lock(mutex_);
    if (thread_.joinable())
        thread_.join();
}

/// In the responder's thread, which must go on answering.
void Reporter::begin() {
    if (answering_.exchange(true))
        return;
    const std::lock_guard lock(mutex_);
    if (thread_.joinable())
        thread_.join();
    try {
        thread_ = own_thread([this] {
            answer();
            answering_.store(false);
        });
    } catch (const std::system_error &) {
        answering_.store(false);
    }
}

/// The signal is often sent to all ranks at once, through their launcher: the first of those that got it answers.
void Reporter::answer() {
    constexpr int64_t kTogetherNs = 1'000'000'000;
    constexpr int64_t kBetweenNs = 150'000'000;
    const int64_t asked = now_ns();
    if (!recorder_.asked(asked)) {
        log().warn("report: SIGUSR1 asks what goes on, but calls are not recorded (FLX_RECORD, or /dev/shm is small)");
        return;
    }
    const std::vector<record::ProcessSeen> before = own_job();
    while (now_ns() - asked < kBetweenNs && !ending_.load())
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::vector<record::ProcessSeen> now = own_job();
    const record::ProcessSeen *speaker = record::speaker(now, asked - kTogetherNs);
    if (speaker == nullptr || speaker->pid == getpid())
        print("asked by SIGUSR1", now, before);
}

void Reporter::report(const std::string &why) {
    constexpr int64_t kGapNs = 60'000'000'000;
    const int64_t asked = now_ns();
    const std::vector<record::ProcessSeen> job = own_job();
    const bool said = std::any_of(job.begin(), job.end(), [&](const record::ProcessSeen &process) {
        return process.asked_ns != 0 && process.asked_ns > asked - kGapNs;
    });
    if (!said && recorder_.asked(asked))
        print(why, job, {});
}

}  // namespace flx

#include "runtime/process/reporter.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <system_error>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/own_thread.h"
#include "runtime/record/hang_report.h"

namespace flx {
namespace {

/// Who is told of the signal, by places: a process may have several, of which one is enough.
constexpr size_t kPlaces = 64;
std::array<std::atomic<Liveness *>, kPlaces> signalled{};
std::atomic<int> handlers_running{0};
std::atomic<int64_t> signalled_at_ns{0};

void on_signal(int) {
    const int error = errno;
    handlers_running.fetch_add(1);
    signalled_at_ns.store(now_ns());
    for (const std::atomic<Liveness *> &place : signalled)
        if (Liveness *liveness = place.load()) {
            liveness->nudge();
            break;
        }
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
    return record::read_job(record::this_process(), getuid());
}

}  // namespace

Reporter::Reporter(Liveness &liveness, record::Recorder &recorder)
    : liveness_(liveness), recorder_(recorder), pid_(getpid()) {
    liveness_.on_nudge([this] { begin(); });
    for (std::atomic<Liveness *> &place : signalled) {
        Liveness *none = nullptr;
        if (place.compare_exchange_strong(none, &liveness_))
            break;
    }
    take_signal();
}

Reporter::~Reporter() {
    for (std::atomic<Liveness *> &place : signalled) {
        Liveness *own = &liveness_;
        place.compare_exchange_strong(own, nullptr);
    }
    if (getpid() != pid_) {  // a forked child, in which neither this object's thread nor the responder is
        if (thread_.joinable())
            thread_.detach();
        return;
    }
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
            try {
                answer();
            } catch (const std::exception &error) {
                log().warn("report: {}", error.what());
            }
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
    const int64_t asked = signalled_at_ns.load();
    if (!recorder_.reports(record::Recorder::Report::asked, asked)) {
        log().warn("report: SIGUSR1 asks what goes on, but calls are not recorded (FLX_RECORD, or /dev/shm is small)");
        return;
    }
    const std::vector<record::ProcessSeen> before = own_job();
    const int64_t looked = now_ns();
    while (now_ns() - looked < kBetweenNs && !ending_.load())
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::vector<record::ProcessSeen> now = own_job();
    const record::ProcessSeen *speaker = record::speaker(now, asked - kTogetherNs);
    // Nobody but this process can tell that its own record is gone.
    if (!now.empty() && (speaker == nullptr || speaker->id != record::this_process()))
        return;
    print("asked by SIGUSR1", now, before);
    // That served all that were asked until now.
    recorder_.reports(record::Recorder::Report::answered, now_ns());
}

void Reporter::report(const std::string &why) {
    constexpr int64_t kGapNs = 60'000'000'000;
    const int64_t now = now_ns();
    const std::lock_guard lock(report_mutex_);
    if (reported_ns_ != 0 && now - reported_ns_ < kGapNs)
        return;
    if (!recorder_.reports(record::Recorder::Report::by_itself, now))
        return;
    const std::vector<record::ProcessSeen> job = own_job();
    if (record::another_reports(job, record::this_process(), now - kGapNs)) {
        recorder_.reports(record::Recorder::Report::by_itself, reported_ns_);
        return;
    }
    reported_ns_ = now;
    print(why, job, {});
}

}  // namespace flx

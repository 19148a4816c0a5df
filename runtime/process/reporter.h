/// \file reporter.h
/// Prints what goes on in the program's ranks on this host (runtime/record/hang_report.h) when the process gets
/// SIGUSR1, when a wait is late, and when a communicator breaks. One rank of a host does so for all: which one they
/// find out from each other's records.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/process/liveness.h"
#include "runtime/record/recorder.h"

namespace flx {

class Reporter {
  public:
    /// Both outlive it. Takes SIGUSR1 where that would end the process; a handler of the program's stays, and one that
    /// the program sets later takes its place.
    Reporter(Liveness &liveness, record::Recorder &recorder);
    ~Reporter();
    Reporter(const Reporter &) = delete;
    Reporter &operator=(const Reporter &) = delete;

    /// Prints a report, which begins with `why`, unless a rank of this host has done so in the last minute: where many
    /// wait for one, the first says it. Reads what all processes of the user on this host record, so it may take some
    /// tens of milliseconds where there are hundreds. Thread-safe.
    void report(const std::string &why);

  private:
    void begin();
    void answer();

    Liveness &liveness_;
    record::Recorder &recorder_;
    const int pid_;
    std::mutex report_mutex_;
    int64_t reported_ns_ = 0;  ///< by report()
    std::mutex mutex_;         ///< of what follows
    std::thread thread_;
    std::atomic<bool> answering_{false};
    std::atomic<bool> ending_{false};
};

}  // namespace flx

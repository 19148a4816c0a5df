/// \file hang_report.h
/// What goes on in a job's processes on one host, in lines for people: what each rank is in and for whom it waits, and
/// what follows from that (explain.h).
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "runtime/record/reader.h"

namespace flx::record {

/// Those of `all` that are of one program with `own`: its launcher says so, or they share a communicator
/// with it. Sorted by rank. Empty: `own` is not among them.
std::vector<ProcessSeen> job_of(const ProcessId &own, const std::vector<ProcessSeen> &all);

/// The same of the user's records on this host, of which the job's own alone are read whole: programs that were killed
/// may have left hundreds.
std::vector<ProcessSeen> read_job(const ProcessId &own, uid_t user);

/// `now` is one job, sorted by rank; `before` of the same processes some milliseconds before, or empty. The first line
/// begins with `why` there is a report. Ranks that are in the same share a line.
std::vector<std::string> hang_report(const std::string &why, const std::vector<ProcessSeen> &now,
                                     const std::vector<ProcessSeen> &before);

/// The process of `job` that answers a signal, of those that got it since `since_ns` and since the last answer: the
/// first that runs. Null: none.
const ProcessSeen *speaker(const std::vector<ProcessSeen> &job, int64_t since_ns);
/// Whether another process of `job` than `own` has reported by itself since `since_ns`, or is to rather than `own`: the
/// one that began first.
bool another_reports(const std::vector<ProcessSeen> &job, const ProcessId &own, int64_t since_ns);

}  // namespace flx::record

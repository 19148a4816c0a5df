/// \file view.h
/// What is shown, made of two looks at the processes: rates are what changed between them.
#pragma once

#include <string>
#include <vector>

#include "runtime/record/explain.h"
#include "runtime/record/reader.h"

namespace flx::top {

struct Row {
    int rank = -1;  ///< of the program; -1: the launcher did not say
    record::ProcessId id;
    pid_t pid = 0;  ///< where it was looked at from; 0: it has none that is known there
    std::string host;
    std::string state;  ///< in FLX, in MPI, outside, stopped, dead
    double calls_per_s = 0;
    std::string call;  ///< the one that it is in, or was in last
    std::string way;   ///< how it was carried out, and where
    record::Carrier carrier = record::Carrier::flx;
    double for_s = 0;    ///< how long it has been in it, or out of it
    std::string waits;   ///< for which rank of the call's communicator; empty: not for long
    std::string broken;  ///< why a communicator of its is
};

struct LinkRow {
    std::string name;
    double bytes_per_s = 0;
    double share = 0;  ///< of what all links of the job carry
};

/// The processes of one mpirun on this host.
struct Job {
    std::string name;  ///< the launcher's; empty: it gave none
    std::string command;
    int size = -1;  ///< ranks in all; -1: not known
    std::vector<Row> rows;
    std::vector<LinkRow> links;
};

struct View {
    std::vector<Job> jobs;
    std::vector<record::Finding> findings;
    size_t long_dead = 0;  ///< jobs that are not shown
    std::string left_out;  ///< why records could not be read; empty: all could
};

/// Of jobs that ended without taking away what they recorded, those whose last call is older are shown on request only.
constexpr double kRecentS = 300;

/// `dead`: also what died long ago, as long as nothing lives.
View view_of(const std::vector<record::ProcessSeen> &now, const std::vector<record::ProcessSeen> &before,
             double patience_s, bool dead = true);

/// Lines of at most `width` columns.
std::vector<std::string> lines_of(const View &view, size_t width, bool explain);

}  // namespace flx::top

/// \file faults.h
/// A rail of one host that becomes slow or is lost for some calls, and what FLX's controller makes of it.
#pragma once

#include <functional>
#include <string>

#include "apps/flx_simulate/machine.h"

namespace flx::simulate {

/// From call `from` on, before call `to`, the rail has `part` of its rate; 0: it is lost, which is seen in the first of
/// these calls.
struct Fault {
    int rail = 0;
    double part = 1;
    int from = 0;
    int to = 0;
};

/// Reads `RAIL:PART:FROM:TO`, such as 0:0.25:100:300, for a program of so many calls. A sentence: what is wrong; empty:
/// nothing.
std::string parse_fault(const std::string &text, const Machine &machine, int calls, Fault &fault);

/// What a program's calls take together, in nanoseconds.
struct Losses {
    double undisturbed = 0;
    double with_controller = 0;
    double without = 0;  ///< vectors stay; what a lost rail should carry goes by the next one
    double least = 0;    ///< as if shares were always the best ones
    int recovered = -1;  ///< calls until one took no more than 5 % longer than the best shares allow; -1: none did
};

/// `calls` calls in each of which the host's rails carry `bytes` together. `time_of`: nanoseconds of a call when a
/// host's rails deliver so many bytes/ns together: the slowest host is the pace of all. The controller of that host is
/// FLX's own, and is shown what its rails did in each call.
Losses run_faults(const Machine &machine, const Fault &fault, int calls, double bytes,
                  const std::function<double(double)> &time_of);

}  // namespace flx::simulate

/// \file faults.h
/// A rail of one host that becomes slow or is lost for some calls, and what FLX's controller makes of it; a host that
/// becomes slow; and what a job loses where such faults come now and then.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "algorithms/registry.h"
#include "apps/flx_simulate/machine.h"

namespace flx::simulate {

/// From call `from` on, before call `to`, a rail of one host has `part` of its rate; 0: it is lost, which is seen in
/// the first of these calls. Or all ranks of a host work at this part of their pace.
struct Fault {
    bool of_host = false;
    int number = 0;  ///< of the rail or the host
    double part = 1;
    int from = 0;
    int to = 0;
};

/// Reads `RAIL:PART:FROM:TO`, such as 0:0.25:100:300, or `hostNUMBER:PART:FROM:TO`, for a program of so many calls. A
/// sentence: what is wrong; empty: nothing.
std::string parse_fault(const std::string &text, const Machine &machine, int calls, Fault &fault);

/// What a program's calls take together, in nanoseconds.
struct Losses {
    double undisturbed = 0;
    double with_controller = 0;
    double without = 0;  ///< vectors stay; what a lost rail should carry goes by the next one
    double least = 0;    ///< as if shares were always the best ones
    int recovered = -1;  ///< calls until one took no more than 5 % longer than the best shares allow; -1: none did
    /// The last call of the fault.
    double last_with = 0;
    double last_without = 0;
    double last_least = 0;
    double adapting = 0;  ///< what the fault's beginning and end cost besides, with the controller
};

/// `calls` calls in each of which the host's rails carry `bytes` together. `time_of`: nanoseconds of a call when a
/// host's rails deliver so many bytes/ns together: the slowest host is the pace of all. The controller of that host is
/// FLX's own, and is shown what its rails did in each call.
Losses run_faults(const Machine &machine, const Fault &fault, int calls, double bytes,
                  const std::function<double(double)> &time_of);

/// The same of a host: a call takes `ns`, and with the fault `slow_ns`, whatever shares are.
Losses run_slow_host(const Fault &fault, int calls, double ns, double slow_ns);

/// How often such a fault comes, and for how long.
struct FaultRate {
    double between_h = 0;  ///< mean time that one rail, or one host, works from the end of a fault to the next one
    double repair_h = 0;   ///< mean time that a fault lasts
};
/// Reads `BETWEEN:REPAIR`, hours both. A sentence: what is wrong; empty: nothing.
std::string parse_rate(const std::string &text, FaultRate &rate);

/// Of a job that does nothing but these calls, in parts of the time that it takes without faults.
struct LostTime {
    double faulty = 0;           ///< of the time that goes by, the part in which a fault is somewhere
    double with_controller = 0;  ///< infinite: faults come faster than the controller follows
    double without = 0;
    double least = 0;
};
/// `parts`: rails or hosts that the machine has. The slowest host is the pace of all, so while one fault is there,
/// another one elsewhere costs nothing more. Faults are independent.
LostTime lost_time(const Losses &losses, int calls, const FaultRate &rate, double parts);

/// What was found of a fault.
struct FaultFound {
    Fault fault;
    algorithms::Collective collective = algorithms::Collective::allreduce;  ///< that is called
    size_t bytes = 0;
    int calls = 0;
    double call_ns = 0;  ///< of one, without the fault
    Losses losses;
    std::optional<FaultRate> rate;  ///< nothing: it was not asked what a job loses
    double parts = 0;               ///< rails or hosts that have faults at this rate
    LostTime job;

    /// What all calls lose, in parts of what they take without the fault.
    [[nodiscard]] double lost(double Losses::*ns) const { return losses.*ns / losses.undisturbed - 1; }
    /// How many times as long a call takes beside a host that is slow.
    [[nodiscard]] double times() const { return losses.last_without / call_ns; }
};

}  // namespace flx::simulate

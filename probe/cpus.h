/// \file cpus.h
/// Which CPUs the operating system lets this process use, without hwloc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace flx::probe {

/// CPU c is bit c % 64 of word c / 64.
using CpuMask = std::vector<uint64_t>;

/// This thread's affinity; at least one CPU.
CpuMask affinity_mask();

/// Number of CPUs in this thread's affinity mask; at least 1.
int affinity_cpus();

/// Whether a host's ranks must share CPUs. `ranks`: of the program there; `known`: the affinity of some or all of them;
/// `limit`: CPUs that all together may use at most. A launcher binds each rank to CPUs of its own where it can: then
/// those whose affinity is not known have others, too. Where the known ones overlap, all are taken to run on the same.
bool crowded(int ranks, const std::vector<CpuMask> &known, int limit);

/// The CPUs of this machine, or the process's quota rounded up where that is less.
int cpu_limit();

/// The least CPU quota of the process's control groups (v1 and v2) and their ancestors, in CPUs; 0: none.
double cgroup_cpu_quota();

/// The same from given text: contents of /proc/self/cgroup and /proc/self/mountinfo, with `root` put before every path
/// that is read (for tests; "" otherwise).
double cgroup_cpu_quota(const std::string &cgroup, const std::string &mountinfo, const std::string &root);

}  // namespace flx::probe

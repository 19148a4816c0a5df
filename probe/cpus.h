/// \file cpus.h
/// Which CPUs the operating system lets this process use, without hwloc.
#pragma once

#include <string>

namespace flx::probe {

/// Number of CPUs in this thread's affinity mask; at least 1.
int affinity_cpus();

/// The least CPU quota of the process's control groups (v1 and v2) and their ancestors, in CPUs; 0: none.
double cgroup_cpu_quota();

/// The same from given text: contents of /proc/self/cgroup and /proc/self/mountinfo, with `root` put before every path
/// that is read (for tests; "" otherwise).
double cgroup_cpu_quota(const std::string &cgroup, const std::string &mountinfo, const std::string &root);

}  // namespace flx::probe

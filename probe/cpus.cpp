#include "probe/cpus.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

namespace flx::probe {
namespace {

std::string read_file(const std::string &path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

std::vector<std::string> split(const std::string &text, char separator) {
    std::vector<std::string> parts;
    std::stringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);)
        parts.push_back(part);
    return parts;
}

bool lists(const std::string &names, const std::string &name) {
    const auto parts = split(names, ',');
    return std::find(parts.begin(), parts.end(), name) != parts.end();
}

/// Where the hierarchy with the cpu controller is mounted, and which of its groups is mounted there.
struct Mount {
    std::string point;
    std::string group;
};

std::vector<Mount> find_mounts(const std::string &mountinfo, bool version2) {
    std::vector<Mount> mounts;
    for (const std::string &line : split(mountinfo, '\n')) {
        // 36 35 98:0 /group /point options... - type source super-options (proc(5))
        const auto dash = line.find(" - ");
        if (dash == std::string::npos)
            continue;
        const auto before = split(line.substr(0, dash), ' ');
        const auto after = split(line.substr(dash + 3), ' ');
        if (before.size() < 5 || after.size() < 3)
            continue;
        if (version2 ? after[0] == "cgroup2" : after[0] == "cgroup" && lists(after[2], "cpu"))
            mounts.push_back({before[4], before[3]});
    }
    return mounts;
}

/// Quota of one group in CPUs; 0: none.
double quota_at(const std::string &folder, bool version2) {
    double quota = 0;
    double period = 0;
    if (version2) {
        std::stringstream text(read_file(folder + "/cpu.max"));  // "max 100000" or "150000 100000"
        if (!(text >> quota >> period))
            return 0;
    } else {
        std::stringstream(read_file(folder + "/cpu.cfs_quota_us")) >> quota;  // -1: none
        std::stringstream(read_file(folder + "/cpu.cfs_period_us")) >> period;
    }
    return quota > 0 && period > 0 ? quota / period : 0;
}

/// The least quota of `group` and its ancestors up to the mount point. In a container the group's path may be that of
/// the host and not exist below the mount: then the mount point itself is the container's group.
double least_quota(const Mount &mount, std::string group, bool version2, const std::string &root) {
    if (mount.group != "/" && group.compare(0, mount.group.size(), mount.group) == 0)
        group.erase(0, mount.group.size());
    double least = 0;
    for (;;) {
        const double quota = quota_at(std::string(root).append(mount.point).append(group), version2);
        if (quota > 0 && (least == 0 || quota < least))
            least = quota;
        const auto slash = group.rfind('/');
        if (group.empty() || slash == std::string::npos)
            return least;
        group.erase(slash);
    }
}

int count(const CpuMask &mask) {
    int cpus = 0;
    for (const uint64_t word : mask)
        cpus += std::popcount(word);
    return cpus;
}

}  // namespace

CpuMask affinity_mask() {
    constexpr size_t kBits = 64;
    // The kernel refuses a mask smaller than its own: grow until it fits.
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (set == nullptr)
            break;
        const size_t bytes = CPU_ALLOC_SIZE(cpus);
        const bool known = sched_getaffinity(0, bytes, set) == 0;
        CpuMask mask(static_cast<size_t>(cpus) / kBits);
        for (int cpu = 0; known && cpu < cpus; ++cpu)
            if (CPU_ISSET_S(cpu, bytes, set))
                mask[static_cast<size_t>(cpu) / kBits] |= uint64_t{1} << (static_cast<size_t>(cpu) % kBits);
        CPU_FREE(set);
        while (!mask.empty() && mask.back() == 0)
            mask.pop_back();
        if (!mask.empty())
            return mask;
    }
    return {1};
}

int affinity_cpus() {
    return count(affinity_mask());
}

bool crowded(int ranks, const std::vector<CpuMask> &known, int limit) {
    CpuMask all;
    bool overlap = false;
    for (const CpuMask &mask : known) {
        all.resize(std::max(all.size(), mask.size()));
        for (size_t word = 0; word < mask.size(); ++word) {
            overlap = overlap || (all[word] & mask[word]) != 0;
            all[word] |= mask[word];
        }
    }
    const int there = overlap ? ranks : static_cast<int>(known.size());
    return there > count(all) || ranks > limit;
}

int cpu_limit() {
    const int online = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
    const double quota = cgroup_cpu_quota();
    return quota > 0 && quota < online ? static_cast<int>(std::ceil(quota)) : online;
}

double cgroup_cpu_quota(const std::string &cgroup, const std::string &mountinfo, const std::string &root) {
    double least = 0;
    for (const std::string &line : split(cgroup, '\n')) {
        // "0::/group" (v2) or "4:cpu,cpuacct:/group" (v1)
        const auto first = line.find(':');
        const auto second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos)
            continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const bool version2 = controllers.empty();
        if (!version2 && !lists(controllers, "cpu"))
            continue;
        for (const Mount &mount : find_mounts(mountinfo, version2)) {
            const double quota = least_quota(mount, line.substr(second + 1), version2, root);
            if (quota > 0 && (least == 0 || quota < least))
                least = quota;
        }
    }
    return least;
}

double cgroup_cpu_quota() {
    return cgroup_cpu_quota(read_file("/proc/self/cgroup"), read_file("/proc/self/mountinfo"), "");
}

}  // namespace flx::probe

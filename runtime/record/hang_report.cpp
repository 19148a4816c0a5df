#include "runtime/record/hang_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/record/explain.h"

namespace flx::record {
namespace {

bool share_a_communicator(const ProcessSeen &a, const ProcessSeen &b) {
    for (const CommunicatorSeen &one : a.communicators)
        for (const CommunicatorSeen &other : b.communicators)
            if (one.id == other.id && one.first_uid == other.first_uid)
                return true;
    return false;
}

bool is_of_one_job(const ProcessSeen &a, const ProcessSeen &b) {
    return is_same(a, b) || (!a.job.empty() && a.job == b.job) || share_a_communicator(a, b);
}

std::string links_of(const CommunicatorSeen &comm) {
    std::string text;
    for (const LinkSeen &link : comm.links) {
        text += text.empty() ? "; sent so far: " : ", ";
        text += link.is_on ? fmt::format("{} {:.1f} MB", link.name, static_cast<double>(link.sent) / 1e6)
                           : fmt::format("{} is off", link.name);
    }
    return text;
}

/// `, between hosts, in phase 2 of 2, 5 of 8 steps done`
std::string progress_of(const Progress &progress) {
    std::string text;
    if (progress.part != Part::all)
        text += fmt::format(", {}", name_of(progress.part));
    if (progress.phases > 1 && progress.phase < progress.phases)
        text += fmt::format(", in phase {} of {}", progress.phase + 1, progress.phases);
    if (progress.steps != 0)
        text += fmt::format(", {} of {} steps done", progress.steps_done, progress.steps);
    return text;
}

/// What a process is in. The time is kept apart, so that equal ones can be told together.
std::string state_of(const ProcessSeen &process) {
    if (process.life == Life::dead)
        return "died";
    const std::string stopped = process.life == Life::stopped ? "stopped by a signal or a debugger, " : "";
    const Latest latest = latest_of(process);
    if (latest.call == nullptr)
        return stopped + "no call so far";
    const CommunicatorSeen &comm = *latest.comm;
    const std::string call = describe(comm.id, *latest.call);
    if (!latest.inside() && latest.call->carrier == Carrier::stream)
        return fmt::format("{}outside of FLX, the last call enqueued is {}", stopped, call);
    if (!latest.inside())
        return fmt::format("{}outside of {}, after {}", stopped,
                           latest.call->carrier == Carrier::mpi ? "FLX and MPI's collectives" : "FLX", call);
    std::string text = fmt::format("{}in {} ({})", stopped, call, way_of(*latest.call));
    text += progress_of(comm.progress);
    if (comm.waits_for)
        text += *comm.waits_for < 0 ? ", waits for others" : fmt::format(", waits for rank {}", *comm.waits_for);
    if (comm.missing != 0)
        text += fmt::format(", from which {} B are missing", comm.missing);
    if (comm.unacknowledged != 0)
        text += fmt::format(", which has {} B not acknowledged", comm.unacknowledged);
    return text;
}

/// Of the program, or, where the launcher did not say, of its last communicator.
int rank_of(const ProcessSeen &process) {
    const Latest latest = latest_of(process);
    return process.world_rank >= 0 || latest.comm == nullptr ? process.world_rank : latest.comm->rank;
}

/// `0, 2-5`
std::string ranges_of(const std::vector<int> &ranks) {
    std::string text;
    for (size_t i = 0; i < ranks.size();) {
        size_t end = i;
        while (end + 1 < ranks.size() && ranks[end + 1] == ranks[end] + 1)
            ++end;
        text += text.empty() ? "" : ", ";
        text += end == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[end]);
        i = end + 1;
    }
    return text;
}

struct Group {
    std::vector<int> ranks;
    std::vector<std::string> pids;
    int64_t since_ns = 0;  ///< the first one
    int64_t seen_ns = 0;
    std::string links;  ///< the first one's
};

}  // namespace

std::vector<ProcessSeen> job_of(const ProcessId &own, const std::vector<ProcessSeen> &all) {
    const auto mine = std::find_if(all.begin(), all.end(), [&](const ProcessSeen &each) { return each.id == own; });
    std::vector<ProcessSeen> job;
    for (const ProcessSeen &process : all)
        if (mine != all.end() && is_of_one_job(*mine, process))
            job.push_back(process);
    std::sort(job.begin(), job.end(), [](const ProcessSeen &a, const ProcessSeen &b) {
        return std::pair(a.world_rank, a.id) < std::pair(b.world_rank, b.id);
    });
    return job;
}

std::vector<ProcessSeen> read_job(const ProcessId &own, uid_t user) {
    Reader reader;
    const std::vector<ProcessSeen> heads = job_of(own, reader.look(user, 0));
    return job_of(own, reader.look(user, kCalls, [&](const ProcessSeen &process) {
        return std::ranges::any_of(heads, [&](const ProcessSeen &head) { return head.id == process.id; });
    }));
}

std::vector<std::string> hang_report(const std::string &why, const std::vector<ProcessSeen> &now,
                                     const std::vector<ProcessSeen> &before) {
    constexpr size_t kPids = 4;
    constexpr int64_t kPatienceNs = 100'000'000;
    std::vector<std::string> lines;
    if (now.empty())
        return lines;
    const int size = now.front().world_size;
    lines.push_back(fmt::format("{}; {} ranks{} on {}, of {}", why, now.size(),
                                size > static_cast<int>(now.size()) ? fmt::format(" of {}", size) : "",
                                now.front().hostname, now.front().command));
    std::map<std::string, Group> groups;
    std::vector<std::string> order;
    for (const ProcessSeen &process : now) {
        const std::string state = state_of(process);
        Group &group = groups[state];
        const int64_t since = latest_of(process).since_ns();
        if (group.ranks.empty()) {
            order.push_back(state);
            const Latest latest = latest_of(process);
            if (latest.inside())
                group.links = links_of(*latest.comm);
        }
        group.since_ns = group.since_ns == 0 ? since : std::min(since, group.since_ns);
        group.seen_ns = process.seen_ns;
        group.ranks.push_back(rank_of(process));
        group.pids.push_back(number_of(process));
    }
    for (const std::string &state : order) {
        const Group &group = groups[state];
        std::string who = fmt::format("{} {}", group.ranks.size() == 1 ? "rank" : "ranks", ranges_of(group.ranks));
        if (group.pids.size() <= kPids)
            who += fmt::format(" (pid {})", fmt::join(group.pids, ", "));
        lines.push_back(fmt::format(
            "{}: {}{}{}", who, state,
            group.since_ns == 0 ? "" : fmt::format(", since {:.1f} s", seconds(group.seen_ns - group.since_ns)),
            group.links));
    }
    const std::vector<Finding> findings = explain(now, before, kPatienceNs);
    for (const Finding &finding : findings)
        lines.push_back(fmt::format("{}: {}. {}", name_of(finding.trouble), finding.sentence, finding.advice));
    // A link that is slow or lost keeps nobody.
    if (std::all_of(findings.begin(), findings.end(), [](const Finding &f) { return f.trouble == Trouble::link; }))
        lines.emplace_back("nobody here waits for long");
    return lines;
}

const ProcessSeen *speaker(const std::vector<ProcessSeen> &job, int64_t since_ns) {
    for (const ProcessSeen &process : job)
        since_ns = std::max(since_ns, process.answered_ns + 1);
    const auto found = std::find_if(job.begin(), job.end(), [&](const ProcessSeen &process) {
        return process.signalled_ns >= since_ns && process.life != Life::dead && process.life != Life::stopped;
    });
    return found == job.end() ? nullptr : &*found;
}

bool another_reports(const std::vector<ProcessSeen> &job, const ProcessId &own, int64_t since_ns) {
    const auto mine =
        std::find_if(job.begin(), job.end(), [&](const ProcessSeen &process) { return process.id == own; });
    return std::any_of(job.begin(), job.end(), [&](const ProcessSeen &process) {
        return process.id != own && process.reports_ns >= since_ns &&
               (mine == job.end() || std::pair(process.reports_ns, process.id) < std::pair(mine->reports_ns, own));
    });
}

}  // namespace flx::record

#include "runtime/record/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace flx::record {
namespace {

/// One rank's view of a communicator.
struct Member {
    size_t process = 0;
    const CommunicatorSeen *comm = nullptr;

    /// The call that it is in; null: it is in none.
    [[nodiscard]] const CallSeen *open() const {
        return comm->last.empty() || comm->last.back().left_ns != 0 ? nullptr : &comm->last.back();
    }
    [[nodiscard]] const CallSeen *call(uint32_t number) const {
        const auto found = std::find_if(comm->last.rbegin(), comm->last.rend(),
                                        [&](const CallSeen &call) { return call.number == number; });
        return found == comm->last.rend() ? nullptr : &*found;
    }
};

/// All that is known of one communicator, by rank.
struct Circle {
    uint32_t id = 0;
    int size = 0;
    int hosts = 0;
    std::map<int, Member> ranks;
};

bool is_alike(const CallRecord &a, const CallRecord &b) {
    return a.kind == b.kind && a.signature == b.signature;
}

class Explaining {
  public:
    Explaining(const std::vector<const ProcessSeen *> &now, const std::vector<ProcessSeen> &before, int64_t patience_ns)
        : now_(now), before_(before), patience_ns_(patience_ns) {
        std::map<std::pair<uint32_t, uint64_t>, Circle> circles;
        for (size_t p = 0; p < now.size(); ++p)
            for (const CommunicatorSeen &comm : now[p]->communicators) {
                Circle &circle = circles[{comm.id, comm.first_uid}];
                circle.id = comm.id;
                circle.size = comm.size;
                circle.hosts = comm.hosts;
                circle.ranks[comm.rank] = {p, &comm};
            }
        for (auto &[key, circle] : circles)
            circles_.push_back(std::move(circle));
        for (const Circle &circle : circles_)
            for (const auto &[rank, member] : circle.ranks)
                if (waits(member))
                    waiting_.insert(member.process);
    }

    std::vector<Finding> all() {
        find_all_that_wait();
        // A link delivers little where the others wait for a rank that is gone, stopped or late.
        const bool rates_count = std::none_of(findings_.begin(), findings_.end(), [](const Finding &found) {
            return found.trouble == Trouble::dead || found.trouble == Trouble::stopped ||
                   found.trouble == Trouble::late;
        });
        for (const Circle &circle : circles_)
            find_links(circle, rates_count);
        std::stable_sort(findings_.begin(), findings_.end(), [](const Finding &a, const Finding &b) {
            return std::tuple(severity(a.trouble), b.waiting) < std::tuple(severity(b.trouble), a.waiting);
        });
        return std::move(findings_);
    }

  private:
    void find_all_that_wait() {
        for (const Circle &circle : circles_) {
            find_broken(circle);
            look_at(circle);
        }
        for (const Circle &circle : circles_)
            if (findings_.empty())
                find_crossed(circle);
        if (findings_.empty())
            find_in_each_other();
    }

    static int severity(Trouble trouble) {
        switch (trouble) {
            case Trouble::broken:
                return -1;
            case Trouble::mismatch:
                return 0;
            case Trouble::dead:
                return 1;
            case Trouble::stopped:
                return 2;
            case Trouble::late:
                return 3;
            case Trouble::elsewhere:
                return 4;
            case Trouble::link:
                return 5;
            default:
                return 6;
        }
    }

    /// Of a dead process nobody knows until when it waited.
    [[nodiscard]] bool waits(const Member &member) const {
        const ProcessSeen &process = *now_[member.process];
        const CallSeen *call = member.open();
        return call != nullptr && (call->what.kind != CallKind::non_blocking || member.comm->waits_for) &&
               process.life != Life::dead && process.seen_ns - call->entered_ns >= patience_ns_;
    }

    [[nodiscard]] std::string name(const Circle &circle, int rank) const {
        const auto found = circle.ranks.find(rank);
        if (found == circle.ranks.end())
            return fmt::format("rank {}", rank);
        const ProcessSeen &process = *now_[found->second.process];
        return fmt::format("rank {} (pid {} on {})", rank, number_of(process), process.hostname);
    }

    [[nodiscard]] std::string describe(const Circle &circle, const CallSeen &call) const {
        return record::describe(circle.id, call);
    }

    /// Threads that wake up now and then (of MPI, of Python) leave a process asleep; one that computes beside many
    /// others on its core may use little of it, and is ready to run whenever it is looked at.
    [[nodiscard]] bool computes(const ProcessSeen &process) const {
        constexpr double kLeast = 0.2;
        const auto earlier = std::find_if(before_.begin(), before_.end(),
                                          [&](const ProcessSeen &other) { return is_same(other, process); });
        if (earlier == before_.end() || earlier->seen_ns >= process.seen_ns)
            return process.life == Life::running;
        return seconds(process.cpu_ns - earlier->cpu_ns) >= kLeast * seconds(process.seen_ns - earlier->seen_ns) ||
               (process.life == Life::running && earlier->life == Life::running);
    }

    /// What a process does that is in no call, in words.
    [[nodiscard]] std::string doing(size_t index) const {
        const ProcessSeen &process = *now_[index];
        int64_t left_ns = 0;
        for (const CommunicatorSeen &comm : process.communicators)
            for (const CallSeen &call : comm.last)
                left_ns = std::max(left_ns, call.left_ns);
        const std::string since =
            left_ns == 0 ? "has made no call so far"
                         : fmt::format("left its last call {:.1f} s ago", seconds(process.seen_ns - left_ns));
        if (process.life == Life::hidden)
            return since + " and lives, in a container into which nobody sees from here";
        return fmt::format("{} and {}", since,
                           computes(process) ? "uses its core: it computes, or waits in MPI" : "sleeps");
    }

    void add(Trouble trouble, const Circle &circle, int rank, size_t waiting, std::string sentence,
             std::string advice) {
        Finding finding{trouble, 0, 0, "", circle.id, rank, waiting, std::move(sentence), std::move(advice)};
        const auto found = circle.ranks.find(rank);
        const bool is_known = found != circle.ranks.end();
        finding.process = (is_known ? found : circle.ranks.begin())->second.process;
        finding.pid = now_[finding.process]->pid;
        finding.host = now_[finding.process]->hostname;
        const auto known = std::find_if(findings_.begin(), findings_.end(), [&](const Finding &other) {
            return other.trouble == trouble && is_known && other.process == finding.process &&
                   trouble != Trouble::slow && trouble != Trouble::elsewhere && trouble != Trouble::link;
        });
        if (known == findings_.end())
            findings_.push_back(std::move(finding));
        else
            known->waiting = std::max(known->waiting, waiting);
    }

    /// All ranks were told the same.
    void find_broken(const Circle &circle) {
        const bool is_over = std::all_of(circle.ranks.begin(), circle.ranks.end(), [&](const auto &each) {
            return now_[each.second.process]->life == Life::dead;
        });
        const bool all_are_over = std::all_of(now_.begin(), now_.end(),
                                              [](const ProcessSeen *process) { return process->life == Life::dead; });
        if (is_over && !all_are_over)
            return;  // an earlier run's
        for (const auto &[rank, member] : circle.ranks)
            if (member.comm->broken) {
                add(Trouble::broken, circle, rank, 0,
                    fmt::format("communicator {}: {}", circle.id, member.comm->why_broken),
                    "Calls on it return this error; a program that goes on after it makes no use of FLX any more.");
                return;
            }
    }

    void look_at(const Circle &circle) {
        std::vector<int> waiting;
        for (const auto &[rank, member] : circle.ranks)
            if (waits(member))
                waiting.push_back(rank);
        if (waiting.empty() || find_mismatch(circle))
            return;
        std::set<int> awaited;
        for (const int rank : waiting) {
            const Member &member = circle.ranks.at(rank);
            const CallSeen &call = *member.open();
            if (call.on_gpus != 0) {
                for (int other = 0; other < circle.size; ++other)
                    if (is_behind_on_gpus(circle, other, call.on_gpus))
                        awaited.insert(other);
                continue;
            }
            if (call.number == 0) {  // for whom it waits only its own record says
                if (member.comm->waits_for.value_or(-1) >= 0)
                    awaited.insert(*member.comm->waits_for);
                continue;
            }
            for (int other = 0; other < circle.size; ++other)
                if (is_behind(circle, other, call.number))
                    awaited.insert(other);
        }
        const CallSeen &first = *circle.ranks.at(waiting.front()).open();
        const auto waits_in = fmt::format("{} and {} others wait in {}", name(circle, waiting.front()),
                                          waiting.size() - 1, describe(circle, first));
        const std::string who =
            waiting.size() == 1 ? fmt::format("{} waits in {}", name(circle, waiting.front()), describe(circle, first))
                                : waits_in;
        for (const int rank : awaited)
            judge(circle, rank, waiting.size(), who);
        if (awaited.empty() && waiting.size() == static_cast<size_t>(circle.size))
            find_slow(circle, waiting, who);
    }

    [[nodiscard]] bool is_behind(const Circle &circle, int rank, uint32_t number) const {
        const auto found = circle.ranks.find(rank);
        return found == circle.ranks.end() || found->second.comm->calls < number;
    }

    /// What a rank has called on GPU memory is known only as long as it is among its last calls.
    [[nodiscard]] bool is_behind_on_gpus(const Circle &circle, int rank, uint32_t number) const {
        const auto found = circle.ranks.find(rank);
        if (found == circle.ranks.end())
            return true;
        uint32_t last = 0;
        for (const CallSeen &call : found->second.comm->last)
            last = std::max(last, call.on_gpus);
        return last < number && (last != 0 || now_[found->second.process]->begun < kCalls);
    }

    /// Says what an awaited rank does; one that waits itself is somebody else's trouble.
    void judge(const Circle &circle, int rank, size_t waiting, const std::string &who) {
        const auto found = circle.ranks.find(rank);
        if (found == circle.ranks.end() && is_of_mpi(circle.id) && circle.id != kMpiIds) {
            add(Trouble::late, circle, rank, waiting,
                fmt::format("{}, for rank {} of it, which has made no such call so far, has ended, or is elsewhere",
                            who, rank),
                "flx_top shows what the other ranks do. Of MPI_COMM_WORLD all ranks are known, of other communicators "
                "those that have made a call that MPI serves.");
            return;
        }
        if (found == circle.ranks.end() && circle.hosts == 1) {
            add(Trouble::dead, circle, rank, waiting,
                fmt::format("{}, for rank {}, which has ended, or keeps no record of its calls", who, rank),
                "Look for why it ended before the others: its output, and whether it leaves a loop early.");
            return;
        }
        if (found == circle.ranks.end()) {
            add(Trouble::elsewhere, circle, rank, waiting,
                fmt::format("{}, for rank {}, of which this host knows nothing", who, rank),
                "Run flx_top --explain --hosts with its host as well.");
            return;
        }
        const ProcessSeen &process = *now_[found->second.process];
        const std::string name = this->name(circle, rank);
        if (process.life == Life::dead)
            add(Trouble::dead, circle, rank, waiting, fmt::format("{}, for {}, which died", who, name),
                "Look for why it died: its output, the kernel's log (out of memory?), core files.");
        else if (process.life == Life::stopped)
            add(Trouble::stopped, circle, rank, waiting,
                fmt::format("{}, for {}, which is stopped by a signal or a debugger", who, name),
                fmt::format("kill -CONT {} lets it go on.", process.pid));
        else if (waiting_.count(found->second.process) == 0)
            add(Trouble::late, circle, rank, waiting,
                fmt::format("{}, for {}, which {}", who, name, doing(found->second.process)),
                fmt::format("Look at what it does{1}: gdb -p {0} -batch -ex bt, or py-spy dump --pid {0}.",
                            process.pid != 0 ? process.pid : process.id.pid,
                            process.pid != 0 ? "" : ", in its container"));
    }

    /// Ranks that are, or were, in calls of one number that are not one call: the fewer ones are named.
    bool find_mismatch(const Circle &circle) {
        std::set<uint32_t> numbers;
        for (const auto &[rank, member] : circle.ranks)
            if (const CallSeen *call = member.open(); call != nullptr && call->number != 0)
                numbers.insert(call->number);
        for (const uint32_t number : numbers) {
            std::vector<std::pair<const CallSeen *, std::vector<int>>> kinds;
            for (const auto &[rank, member] : circle.ranks) {
                const CallSeen *call = member.call(number);
                if (call == nullptr)
                    continue;
                auto kind = std::find_if(kinds.begin(), kinds.end(),
                                         [&](const auto &other) { return is_alike(other.first->what, call->what); });
                if (kind == kinds.end())
                    kind = kinds.insert(kinds.end(), {call, {}});
                kind->second.push_back(rank);
            }
            if (kinds.size() < 2)
                continue;
            std::stable_sort(kinds.begin(), kinds.end(),
                             [](const auto &a, const auto &b) { return a.second.size() > b.second.size(); });
            const auto &[usual, many] = kinds.front();
            const auto &[odd, few] = kinds.back();
            size_t waiting = 0;
            for (const auto &[rank, member] : circle.ranks)
                waiting += waits(member) ? 1 : 0;
            add(Trouble::mismatch, circle, few.front(), waiting,
                fmt::format("calls do not match: {} is in {}, and {} in {}", name(circle, few.front()),
                            describe(circle, *odd), name(circle, many.front()), to_string(usual->what)),
                "All ranks must call alike: look at what the program does differently on that rank. FLX_CHECK=1 makes "
                "it an error at once.");
            return true;
        }
        return false;
    }

    /// Whoever is awaited waits itself: on another communicator, for a rank that waits here.
    void find_crossed(const Circle &circle) {
        for (const auto &[rank, member] : circle.ranks) {
            const CallSeen *call = waits(member) ? member.open() : nullptr;
            for (int other = 0; call != nullptr && call->number != 0 && other < circle.size; ++other) {
                const auto found = circle.ranks.find(other);
                if (found == circle.ranks.end() || !is_behind(circle, other, call->number) ||
                    waiting_.count(found->second.process) == 0)
                    continue;
                for (const Circle &there : circles_)
                    for (const auto &[its_rank, its] : there.ranks)
                        if (&there != &circle && its.process == found->second.process && waits(its)) {
                            add(Trouble::mismatch, circle, other, waiting_.size(),
                                fmt::format("calls on two communicators cross: {} waits in {}, and {} in {}",
                                            name(circle, rank), describe(circle, *call), name(there, its_rank),
                                            describe(there, *its.open())),
                                "Ranks must use communicators in one order, or from threads of their own.");
                            return;
                        }
            }
        }
    }

    /// All that are awaited wait themselves, so it is said who is where.
    void find_in_each_other() {
        for (const Circle &circle : circles_) {
            std::string who;
            int first = -1;
            size_t waiting = 0;
            for (const auto &[rank, member] : circle.ranks) {
                if (!waits(member))
                    continue;
                constexpr size_t kMost = 4;
                if (++waiting <= kMost)
                    who += fmt::format("{}{} in {}", who.empty() ? "" : ", ", name(circle, rank),
                                       describe(circle, *member.open()));
                first = first < 0 ? rank : first;
            }
            if (waiting > 1)
                add(Trouble::late, circle, first, waiting, fmt::format("ranks wait for each other: {}", who),
                    "Look at the order of their calls and messages.");
        }
    }

    /// Each host's link once: several ranks, and several communicators of a rank, see the same.
    void find_links(const Circle &circle, bool rates_count) {
        for (const auto &[rank, member] : circle.ranks)
            for (const LinkSeen &link : member.comm->links) {
                const ProcessSeen &process = *now_[member.process];
                const std::pair key(process.hostname, link.name);
                if (process.life == Life::dead || !link.is_on || !told_links_.insert(key).second)
                    continue;
                const std::string from = name(circle, rank);
                if (link.lost_to >= 0)
                    add(Trouble::link, circle, rank, 0,
                        fmt::format("{} does not reach rank {} of communicator {} from {}: the other links carry its "
                                    "share",
                                    link.name, link.lost_to, circle.id, from),
                        fmt::format("Look at {} on both hosts: its cable, ip -s link, ping over it. FLX uses it again "
                                    "when it answers.",
                                    link.name));
                else if (rates_count && is_slow(*member.comm, link))
                    add(Trouble::link, circle, rank, 0,
                        fmt::format(
                            "{} delivers {:.1f} MB/s on communicator {} from {}, and {:.1f} MB/s when all is well; "
                            "its share is {:.2f} now",
                            link.name, link.bytes_per_s / 1e6, circle.id, from, link.usual_bytes_per_s / 1e6,
                            link.share),
                        fmt::format("Look at who else uses {}, at its errors (ip -s link) and at the speed that it "
                                    "negotiated (ethtool).",
                                    link.name));
                else
                    told_links_.erase(key);
            }
    }

    /// What is left of what it delivered when all was well. No less than that of the others counts: where cores are
    /// short, or messages, all links seem to slow down.
    static bool is_slow(const CommunicatorSeen &comm, const LinkSeen &link) {
        constexpr double kSlow = 0.4;
        if (left_of(link) <= 0)
            return false;
        double most = 0;
        for (const LinkSeen &other : comm.links)
            if (other.name != link.name && other.is_on && other.lost_to < 0 && other.share > 0)
                most = std::max(most, left_of(other));
        return left_of(link) < kSlow * (most > 0 ? std::min(most, 1.0) : 1);
    }
    static double left_of(const LinkSeen &link) {
        return link.usual_bytes_per_s > 0 ? link.bytes_per_s / link.usual_bytes_per_s : 0;
    }

    void find_slow(const Circle &circle, const std::vector<int> &waiting, const std::string &who) {
        std::map<std::string, uint64_t> moved;
        int64_t between_ns = 1;
        for (const int rank : waiting) {
            const Member &member = circle.ranks.at(rank);
            const ProcessSeen &process = *now_[member.process];
            for (const ProcessSeen &earlier : before_)
                for (const CommunicatorSeen &comm : earlier.communicators)
                    if (is_same(earlier, process) && comm.id == circle.id && comm.first_uid == member.comm->first_uid) {
                        between_ns = std::max(between_ns, process.seen_ns - earlier.seen_ns);
                        for (size_t l = 0; l < std::min(comm.links.size(), member.comm->links.size()); ++l)
                            if (member.comm->links[l].is_on && member.comm->links[l].sent >= comm.links[l].sent)
                                moved[comm.links[l].name] += member.comm->links[l].sent - comm.links[l].sent;
                    }
        }
        std::string rates;
        for (const auto &[link, bytes] : moved)
            rates += fmt::format("{}{} {:.1f} MB/s", rates.empty() ? "" : ", ", link,
                                 static_cast<double>(bytes) * 1e3 / static_cast<double>(between_ns));
        if (is_of_mpi(circle.id)) {
            add(Trouble::slow, circle, waiting.front(), waiting.size(),
                fmt::format("{}, which all ranks are in and MPI serves", who),
                "Nobody is late on it, if the ranks are in one and the same of several communicators that they have "
                "together, which is not known of MPI's. gdb -batch -ex bt -p PID says what each is at.");
            return;
        }
        add(Trouble::slow, circle, waiting.front(), waiting.size(),
            fmt::format("{}, which all ranks are in: {}", who, rates.empty() ? "no link is known" : rates),
            "flx_info says what the links delivered when they were measured.");
    }

    const std::vector<const ProcessSeen *> &now_;
    const std::vector<ProcessSeen> &before_;
    const int64_t patience_ns_;
    std::vector<Circle> circles_;
    std::set<size_t> waiting_;                                  ///< processes
    std::set<std::pair<std::string, std::string>> told_links_;  ///< of hosts, those of which something is found
    std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> explain_job(const std::vector<const ProcessSeen *> &now, const std::vector<ProcessSeen> &before,
                                 int64_t patience_ns) {
    return Explaining(now, before, patience_ns).all();
}

std::vector<Finding> explain(const std::vector<ProcessSeen> &now, const std::vector<ProcessSeen> &before,
                             int64_t patience_ns) {
    std::vector<const ProcessSeen *> each;
    for (const ProcessSeen &process : now)
        each.push_back(&process);
    return explain_job(each, before, patience_ns);
}

std::string name_of(Trouble trouble) {
    switch (trouble) {
        case Trouble::late:
            return "late";
        case Trouble::stopped:
            return "stopped";
        case Trouble::dead:
            return "dead";
        case Trouble::broken:
            return "broken";
        case Trouble::mismatch:
            return "mismatch";
        case Trouble::elsewhere:
            return "elsewhere";
        case Trouble::link:
            return "link";
        case Trouble::slow:
            return "slow";
    }
    return "";
}

}  // namespace flx::record

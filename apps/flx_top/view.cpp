#include "apps/flx_top/view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "runtime/record/format.h"
#include "runtime/record/process_files.h"

namespace flx::top {

using record::CommunicatorSeen;
using record::Finding;
using record::Life;
using record::ProcessSeen;

namespace {

Row row_of(const ProcessSeen &process, const ProcessSeen *before) {
    Row row;
    row.rank = process.world_rank;
    row.id = process.id;
    row.pid = process.pid;
    row.host = process.hostname;
    const record::Latest latest = record::latest_of(process);
    const bool inside = latest.inside();
    const bool by_mpi = latest.call != nullptr && latest.call->carrier == record::Carrier::mpi;
    row.state = process.life == Life::dead      ? "dead"
                : process.life == Life::stopped ? "stopped"
                : !inside                       ? "outside"
                : by_mpi                        ? "in MPI"
                                                : "in FLX";
    if (before != nullptr && process.seen_ns > before->seen_ns)
        row.calls_per_s = static_cast<double>(process.begun - before->begun) * 1e9 /
                          static_cast<double>(process.seen_ns - before->seen_ns);
    if (latest.call != nullptr) {
        row.call = to_string(latest.call->what);
        row.way = way_of(*latest.call);
        row.carrier = latest.call->carrier;
        row.for_s = record::seconds(process.seen_ns - latest.since_ns());
        if (inside && latest.comm->waits_for)
            row.waits = *latest.comm->waits_for < 0 ? "others" : fmt::format("rank {}", *latest.comm->waits_for);
    }
    for (const CommunicatorSeen &comm : process.communicators)
        if (comm.broken && row.broken.empty())
            row.broken = comm.why_broken;
    return row;
}

std::vector<LinkRow> links_of(const std::vector<const ProcessSeen *> &now,
                              const std::vector<const ProcessSeen *> &before) {
    std::map<std::string, double> rates;
    double all = 0;
    for (size_t p = 0; p < now.size(); ++p)
        for (const CommunicatorSeen &comm : now[p]->communicators)
            for (size_t l = 0; l < comm.links.size(); ++l) {
                if (!comm.links[l].is_on)
                    continue;
                double &rate = rates[comm.links[l].name];
                if (before[p] == nullptr || now[p]->seen_ns <= before[p]->seen_ns)
                    continue;
                for (const CommunicatorSeen &earlier : before[p]->communicators)
                    if (earlier.id == comm.id && earlier.first_uid == comm.first_uid && l < earlier.links.size()) {
                        const double sent = static_cast<double>(comm.links[l].sent - earlier.links[l].sent) * 1e9 /
                                            static_cast<double>(now[p]->seen_ns - before[p]->seen_ns);
                        rate += sent;
                        all += sent;
                    }
            }
    std::vector<LinkRow> rows;
    for (const auto &[name, rate] : rates)
        rows.push_back({name, rate, all > 0 ? rate / all : 0});
    return rows;
}

std::string short_time(double seconds) {
    if (seconds < 1e-3)
        return fmt::format("{:.0f} us", seconds * 1e6);
    if (seconds < 1)
        return fmt::format("{:.0f} ms", seconds * 1e3);
    return fmt::format("{:.1f} s", seconds);
}

std::string short_rate(double bytes_per_s) {
    return bytes_per_s < 1e9 ? fmt::format("{:.1f} MB/s", bytes_per_s / 1e6)
                             : fmt::format("{:.2f} GB/s", bytes_per_s / 1e9);
}

/// Of calls on host memory that FLX has nothing is said.
std::string shown_call(const Row &row) {
    return row.carrier == record::Carrier::flx ? row.call : fmt::format("{}, {}", row.call, row.way);
}

/// Words that fit, with two columns before all lines but the first.
void wrap(const std::string &text, size_t width, std::vector<std::string> &lines) {
    std::string line;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find(' ', at), text.size());
        const std::string word = text.substr(at, end - at);
        if (!line.empty() && line.size() + 1 + word.size() > width) {
            lines.push_back(line);
            line.assign(1, ' ');
        }
        if (!line.empty())
            line += ' ';
        line += word;
        at = end + 1;
    }
    lines.push_back(line);
}

/// Of the column of hosts; 0: all are on one.
size_t width_of_hosts(const Job &job) {
    size_t widest = 0;
    bool one = true;
    for (const Row &row : job.rows) {
        widest = std::max(widest, row.host.size() + 1);
        one = one && row.host == job.rows.front().host;
    }
    return one ? 0 : widest;
}

/// Whether one of these processes was in a call, or left one, a short while ago.
bool recent(const std::vector<const ProcessSeen *> &processes) {
    return std::ranges::any_of(processes, [](const ProcessSeen *process) {
        const record::Latest last = record::latest_of(*process);
        return last.call != nullptr && record::seconds(process->seen_ns - last.since_ns()) < kRecentS;
    });
}

}  // namespace

View view_of(const std::vector<ProcessSeen> &now, const std::vector<ProcessSeen> &before, double patience_s,
             bool dead) {
    std::map<std::string, std::vector<const ProcessSeen *>> jobs;
    std::set<std::string> living;
    const auto job_of = [](const ProcessSeen &process) {
        return process.job.empty() ? fmt::format("{} of {}", process.command, process.world_size) : process.job;
    };
    for (const ProcessSeen &process : now) {
        jobs[job_of(process)].push_back(&process);
        if (process.life != Life::dead)
            living.insert(job_of(process));
    }
    // What a job has left of which no process lives is only shown where there is no other.
    View view;
    for (auto &[name, processes] : jobs) {
        if (!living.empty() && living.count(name) == 0)
            continue;
        if (!dead && living.empty() && !recent(processes)) {
            ++view.long_dead;
            continue;
        }
        std::sort(processes.begin(), processes.end(), [](const ProcessSeen *a, const ProcessSeen *b) {
            return std::pair(a->world_rank, a->id) < std::pair(b->world_rank, b->id);
        });
        Job job;
        job.name = processes.front()->job;
        job.command = processes.front()->command;
        job.size = processes.front()->world_size;
        std::vector<const ProcessSeen *> earlier;
        for (const ProcessSeen *process : processes) {
            const auto found = std::find_if(before.begin(), before.end(),
                                            [&](const ProcessSeen &other) { return is_same(other, *process); });
            earlier.push_back(found == before.end() ? nullptr : &*found);
            job.rows.push_back(row_of(*process, earlier.back()));
        }
        job.links = links_of(processes, earlier);
        view.jobs.push_back(std::move(job));
        for (Finding &finding : record::explain_job(processes, before, static_cast<int64_t>(patience_s * 1e9)))
            view.findings.push_back(std::move(finding));
    }
    return view;
}

std::vector<std::string> lines_of(const View &view, size_t width, bool explain) {
    std::vector<std::string> lines;
    if (view.jobs.empty())
        lines.push_back(!view.left_out.empty() ? view.left_out + "."
                        : record::has_room()
                            ? "No program of this user's is recorded on this host."
                            : fmt::format("Programs of FLX record nothing on this host: {} has less than {} MiB.",
                                          record::kFolder, record::kLeastFolder >> 20U));
    if (view.long_dead != 0)
        lines.push_back(fmt::format("{} died some time ago: flx_top --explain shows what they did last.",
                                    view.long_dead == 1 ? "A program" : fmt::format("{} programs", view.long_dead)));
    for (const Job &job : view.jobs) {
        const size_t host = width_of_hosts(job);
        const std::string of = job.size < 0 ? "" : fmt::format(" of {}", job.size);
        lines.push_back(fmt::format("{}{}{} ranks here{}", job.command,
                                    job.name.empty() ? ", " : ", job " + job.name + ", ", job.rows.size(), of));
        lines.push_back(fmt::format("{:>5} {:<{}}{:>8} {:<8} {:>9} {:>8}  {:<9} {}", "rank", host > 0 ? "host" : "",
                                    host, "pid", "state", "calls/s", "for", "waits for", "call"));
        for (const Row &row : job.rows) {
            lines.push_back(fmt::format("{:>5} {:<{}}{:>8} {:<8} {:>9.0f} {:>8}  {:<9} {}",
                                        row.rank < 0 ? "?" : std::to_string(row.rank), host > 0 ? row.host : "", host,
                                        row.pid != 0 ? std::to_string(row.pid) : fmt::format("({})", row.id.pid),
                                        row.state, row.calls_per_s, row.call.empty() ? "" : short_time(row.for_s),
                                        row.waits, shown_call(row)));
            if (!row.broken.empty())
                lines.push_back("      broken: " + row.broken);
        }
        std::string links;
        for (const LinkRow &link : job.links)
            links += fmt::format("{}{} {} ({:.0f} %)", links.empty() ? "links: " : ", ", link.name,
                                 short_rate(link.bytes_per_s), 100 * link.share);
        if (!links.empty())
            lines.push_back(links);
        if (std::ranges::any_of(job.rows, [](const Row &row) { return row.pid == 0; }))
            lines.emplace_back("(numbers of processes in their own containers)");
        lines.emplace_back();
    }
    if (explain && view.findings.empty())
        lines.emplace_back("Nobody waits for long.");
    for (const Finding &finding : view.findings) {
        if (!explain)
            break;
        wrap(fmt::format("{}: {}.", name_of(finding.trouble), finding.sentence), width, lines);
        wrap(finding.advice, width, lines);
    }
    for (std::string &line : lines)
        if (line.size() > width)
            line.resize(width);
    return lines;
}

}  // namespace flx::top

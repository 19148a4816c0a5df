#include "apps/flx_top/reports.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/common/text_file.h"

namespace flx::top {

using nlohmann::ordered_json;

namespace {

/// Null: it has no number here.
ordered_json pid_of(pid_t pid) {
    return pid != 0 ? ordered_json(pid) : ordered_json(nullptr);
}

}  // namespace

std::string json_of(const View &view, const std::vector<record::ProcessSeen> &now) {
    std::map<std::pair<std::string, record::ProcessId>, const record::ProcessSeen *> processes;
    for (const record::ProcessSeen &process : now)
        processes[{process.hostname, process.id}] = &process;
    ordered_json all = {{"jobs", ordered_json::array()}, {"findings", ordered_json::array()}};
    for (const Job &job : view.jobs) {
        ordered_json rows = ordered_json::array();
        for (const Row &row : job.rows) {
            const record::ProcessSeen &process = *processes.at({row.host, row.id});
            rows.push_back({{"rank", row.rank},
                            {"pid", pid_of(row.pid)},
                            {"pid_in_container", row.id.pid},
                            {"host", row.host},
                            {"state", row.state},
                            {"calls", process.begun},
                            {"calls_by_mpi", process.by_mpi},
                            {"calls_on_gpus", process.on_gpus},
                            {"calls_per_s", row.calls_per_s},
                            {"call", row.call},
                            {"way", row.way},
                            {"for_s", row.for_s},
                            {"waits", row.waits},
                            {"broken", row.broken}});
        }
        ordered_json links = ordered_json::array();
        for (const LinkRow &link : job.links)
            links.push_back({{"name", link.name}, {"bytes_per_s", link.bytes_per_s}, {"share", link.share}});
        all["jobs"].push_back({{"name", job.name},
                               {"command", job.command},
                               {"size", job.size},
                               {"ranks", std::move(rows)},
                               {"links", std::move(links)}});
    }
    for (const record::Finding &finding : view.findings)
        all["findings"].push_back({{"trouble", name_of(finding.trouble)},
                                   {"pid", pid_of(finding.pid)},
                                   {"host", finding.host},
                                   {"rank", finding.rank},
                                   {"communicator", finding.comm},
                                   {"waiting", finding.waiting},
                                   {"sentence", finding.sentence},
                                   {"advice", finding.advice}});
    // A command line may have bytes in it that are no UTF-8.
    return all.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

namespace {

std::string escaped(const std::string &text) {
    std::string result;
    for (const char c : text) {
        if (c == '\\' || c == '"')
            result += '\\';
        result += c == '\n' ? ' ' : c;
    }
    return result;
}

}  // namespace

std::string prometheus_of(const View &view, const std::vector<record::ProcessSeen> &now) {
    std::string calls, passed, waits, sent;
    std::map<std::pair<std::string, record::ProcessId>, const Row *> rows;
    for (const Job &job : view.jobs)
        for (const Row &row : job.rows)
            rows[{row.host, row.id}] = &row;
    for (const record::ProcessSeen &process : now) {
        const auto found = rows.find({process.hostname, process.id});
        if (found == rows.end() || process.life == record::Life::dead)
            continue;
        std::string labels = fmt::format("job=\"{}\",rank=\"{}\",pid=\"{}\"", escaped(process.job), process.world_rank,
                                         process.pid != 0 ? process.pid : process.id.pid);
        if (process.pid == 0)
            labels += fmt::format(",pid_namespace=\"{}\"", process.id.pid_namespace);
        calls += fmt::format("flx_calls_total{{{}}} {}\n", labels, process.begun - process.by_mpi);
        passed += fmt::format("flx_passed_calls_total{{{}}} {}\n", labels, process.by_mpi);
        const Row &row = *found->second;
        waits += fmt::format("flx_waits_seconds{{{}}} {}\n", labels, row.waits.empty() ? 0 : row.for_s);
        std::map<std::string, uint64_t> links;
        for (const record::CommunicatorSeen &comm : process.communicators)
            for (const record::LinkSeen &link : comm.links)
                links[link.name] += link.sent;
        for (const auto &[name, bytes] : links)
            sent += fmt::format("flx_link_sent_bytes{{{},link=\"{}\"}} {}\n", labels, escaped(name), bytes);
    }
    return "# HELP flx_calls_total Calls of FLX that a rank has begun.\n# TYPE flx_calls_total counter\n" + calls +
           "# HELP flx_passed_calls_total Calls of a rank that MPI served.\n# TYPE flx_passed_calls_total counter\n" +
           passed +
           "# HELP flx_waits_seconds How long a rank has waited for others in its call.\n"
           "# TYPE flx_waits_seconds gauge\n" +
           waits +
           "# HELP flx_link_sent_bytes Payload that the communicators in use have sent over a link.\n"
           "# TYPE flx_link_sent_bytes gauge\n" +
           sent;
}

Status replace(const std::string &file, const std::string &text) {
    if (!apps::replace_text(file, text))
        return fail(Fault::not_written, "{} cannot be written: {}", file, std::strerror(errno));
    return {};
}

}  // namespace flx::top

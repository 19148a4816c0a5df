#include "apps/flx_top/looks.h"

#include <array>
#include <bit>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "runtime/record/format.h"

namespace flx::record {

using nlohmann::json;
using Words = std::array<uint64_t, sizeof(CallRecord) / sizeof(uint64_t)>;

// NOLINTBEGIN(misc-use-internal-linkage): nlohmann-json finds these by their arguments' namespace.
void to_json(json &to, const CallSeen &call) {
    to = {
        call.stamp,   call.entered_ns, call.left_ns, call.number, call.way, call.error, std::bit_cast<Words>(call.what),
        call.on_gpus, call.carrier};
}
void from_json(const json &from, CallSeen &call) {
    call.stamp = from.at(0);
    call.entered_ns = from.at(1);
    call.left_ns = from.at(2);
    call.number = from.at(3);
    call.way = from.at(4);
    call.error = from.at(5);
    call.what = std::bit_cast<CallRecord>(from.at(6).get<Words>());
    call.on_gpus = from.at(7);
    call.carrier = from.at(8);
    if (!is_known(call))
        throw json::other_error::create(501, "a call of a kind that is not known", &from);
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(LinkSeen, name, sent, share, is_on, lost_to, usual_bytes_per_s, bytes_per_s)

void to_json(json &to, const CommunicatorSeen &comm) {
    to = {{"id", comm.id},
          {"first_uid", comm.first_uid},
          {"rank", comm.rank},
          {"size", comm.size},
          {"hosts", comm.hosts},
          {"broken", comm.broken},
          {"why_broken", comm.why_broken},
          {"calls", comm.calls},
          {"last", comm.last},
          {"waits_since_ns", comm.waits_since_ns},
          {"missing", comm.missing},
          {"unacknowledged", comm.unacknowledged},
          {"progress", std::bit_cast<uint64_t>(comm.progress)},
          {"links", comm.links}};
    if (comm.waits_for)
        to["waits_for"] = *comm.waits_for;
}
void from_json(const json &from, CommunicatorSeen &comm) {
    comm.id = from.at("id");
    comm.first_uid = from.at("first_uid");
    comm.rank = from.at("rank");
    comm.size = from.at("size");
    comm.hosts = from.at("hosts");
    comm.broken = from.at("broken");
    comm.why_broken = from.at("why_broken");
    comm.calls = from.at("calls");
    comm.last = from.at("last").get<std::vector<CallSeen>>();
    comm.waits_since_ns = from.at("waits_since_ns");
    comm.missing = from.at("missing");
    comm.unacknowledged = from.at("unacknowledged");
    comm.progress = std::bit_cast<Progress>(from.at("progress").get<uint64_t>());
    if (!is_known(comm))
        throw json::other_error::create(501, "a communicator of a kind that is not known", &from);
    comm.links = from.at("links").get<std::vector<LinkSeen>>();
    if (from.contains("waits_for"))
        comm.waits_for = from.at("waits_for").get<int>();
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProcessId, pid, pid_namespace)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ProcessSeen, id, pid, life, cpu_ns, seen_ns, world_rank, world_size, hostname, job,
                                   command, signalled_ns, answered_ns, reports_ns, begun, by_mpi, on_gpus,
                                   communicators)
// NOLINTEND(misc-use-internal-linkage)

}  // namespace flx::record

namespace flx::top {

using nlohmann::json;

std::string line_of(const std::vector<record::ProcessSeen> &processes) {
    const json line = {{"version", record::kVersion}, {"processes", processes}};
    return line.dump(-1, ' ', false, json::error_handler_t::replace);
}

Status read_line(const std::string &line, std::vector<record::ProcessSeen> &processes) {
    try {
        const json all = json::parse(line);
        if (all.at("version") != record::kVersion)
            return fail(Fault::not_read, "its flx_top is of another version");
        processes = all.at("processes").get<std::vector<record::ProcessSeen>>();
    } catch (const json::exception &) {
        constexpr size_t kMost = 80;
        return fail(Fault::not_read, "it says \"{}\", not what flx_top says", line.substr(0, kMost));
    }
    return {};
}

}  // namespace flx::top

/// The public functions that say what happened.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "runtime/api/api.h"
#include "runtime/api/report.h"
#include "runtime/base/counters.h"
#include "runtime/base/sized.h"

using flx::fail;
using flx::Fault;
using flx::Status;
using flx::algorithms::Collective;
using namespace flx::api;

int flx_version(void) {
    return FLX_VERSION_MAJOR * 10000 + FLX_VERSION_MINOR * 100 + FLX_VERSION_PATCH;
}

const char *flx_strerror(flx_status_t status) {
    switch (status) {
        case FLX_SUCCESS:
            return "FLX_SUCCESS: all went well";
        case FLX_ERR_ARGUMENT:
            return "FLX_ERR_ARGUMENT: an argument of this call is not allowed";
        case FLX_ERR_CONFIG:
            return "FLX_ERR_CONFIG: a knob is not known or its value not allowed";
        case FLX_ERR_UNSUPPORTED:
            return "FLX_ERR_UNSUPPORTED: this build or these links cannot do that";
        case FLX_ERR_MISMATCH:
            return "FLX_ERR_MISMATCH: ranks called with arguments that differ";
        case FLX_ERR_LINK:
            return "FLX_ERR_LINK: no link to a peer works";
        case FLX_ERR_PEER:
            return "FLX_ERR_PEER: a peer died or stopped";
        case FLX_ERR_COMM:
            return "FLX_ERR_COMM: the communicator was broken by an earlier error";
        case FLX_ERR_SYSTEM:
            return "FLX_ERR_SYSTEM: the system refused something";
    }
    return "not a status of FLX";
}

const char *flx_last_error(void) {
    return last_sentence();
}

flx_status_t flx_comm_link_stats(flx_comm_t comm, flx_link_stats_t *stats, size_t entry_size, size_t capacity,
                                 size_t *count) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        FLX_TRY(need(count, "count"));
        if (capacity != 0)
            FLX_TRY(need(stats, "stats"));
        if (!flx::is_size_of<flx_link_stats_t>(entry_size, offsetof(flx_link_stats_t, enabled)))
            return fail(Fault::struct_size, "entry_size is {}; sizeof(flx_link_stats_t) is {}", entry_size,
                        sizeof(flx_link_stats_t));
        const auto lock = comm->impl->guard();
        const auto put = [&](const flx_link_stats_t &entry, size_t index) {
            flx::write_sized(entry, reinterpret_cast<std::byte *>(stats) + index * entry_size, entry_size);
        };
        const auto &links = comm->impl->links();
        const flx::cuda::Group *devices = comm->impl->devices();
        const std::vector<flx::cuda::GpuLink> between_gpus =
            devices == nullptr ? std::vector<flx::cuda::GpuLink>{} : devices->links();
        *count = links.size() + between_gpus.size();
        for (size_t l = 0; l < std::min(capacity, links.size()); ++l) {
            flx_link_stats_t entry{};
            std::strncpy(entry.name, links[l].name.c_str(), sizeof entry.name - 1);
            std::strncpy(entry.why, links[l].why_off.c_str(), sizeof entry.why - 1);
            entry.enabled = links[l].link != nullptr && links[l].why_off.empty() ? 1 : 0;
            const flx::LinkCounters counters = comm->impl->counters(static_cast<int>(l));
            entry.bytes_sent = counters.bytes;
            entry.chunks_sent = counters.chunks;
            const flx::LinkMeasured &measured = links[l].far.done ? links[l].far : links[l].near;
            entry.latency_us = measured.latency_ns / 1e3;
            entry.bandwidth_GBps = measured.bytes_per_ns;
            entry.share = comm->impl->last_share(static_cast<int>(l));
            put(entry, l);
        }
        for (size_t l = links.size(); l < std::min(capacity, *count); ++l) {
            const flx::cuda::GpuLink &link = between_gpus[l - links.size()];
            flx_link_stats_t entry{};
            std::strncpy(entry.name, link.name.c_str(), sizeof entry.name - 1);
            std::strncpy(entry.why, link.why_off.c_str(), sizeof entry.why - 1);
            entry.enabled = link.why_off.empty() ? 1 : 0;
            entry.bytes_sent = link.bytes_sent;
            entry.bandwidth_GBps = link.bytes_per_ns;
            entry.share = link.share;
            put(entry, l);
        }
        return {};
    });
}

namespace {

std::string known_collectives() {
    std::string names;
    for (const flx::algorithms::Traits &traits : flx::algorithms::kTraits)
        names += fmt::format("{}{}", names.empty() ? "" : ", ", traits.name);
    return names;
}

Status parse_any(std::string_view name, Collective &collective) {
    if (const auto parsed = flx::algorithms::parse_collective(name)) {
        collective = *parsed;
        return {};
    }
    return fail(Fault::unknown_collective, "collective \"{}\" is not known; {} are", name, known_collectives());
}

}  // namespace

flx_status_t flx_comm_algorithm(flx_comm_t comm, const char *collective, size_t bytes, flx_dtype_t dtype, flx_op_t op,
                                const char **name) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        FLX_TRY(need(collective, "collective"));
        FLX_TRY(need(name, "name"));
        FLX_TRY(check_dtype(dtype));
        FLX_TRY(check_op(op));
        Collective parsed{};
        FLX_TRY(parse_any(collective, parsed));
        const auto lock = comm->impl->guard();
        *name = comm->impl->size() == 1 ? "copy" : comm->impl->way_name(parsed, bytes);
        return {};
    });
}

flx_status_t flx_comm_algorithms(flx_comm_t comm, const char *collective, size_t bytes,
                                 void (*each)(const char *name, double predicted_us, void *arg), void *arg) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        FLX_TRY(need(collective, "collective"));
        if (each == nullptr)
            return fail(Fault::null_pointer, "each is null; a function that is called with each way is needed");
        Collective parsed{};
        FLX_TRY(parse_any(collective, parsed));
        std::vector<flx::Planner::Candidate> all;
        {
            const auto lock = comm->impl->guard();
            if (comm->impl->size() > 1)
                all = comm->impl->all_candidates(parsed, bytes);
        }
        if (comm->impl->size() == 1)
            each("copy", 0, arg);
        for (const flx::Planner::Candidate &one : all)
            each(one.choice.name(), one.ns / 1e3, arg);
        return {};
    });
}

flx_status_t flx_comm_device_algorithm(flx_comm_t comm, const char *collective, size_t bytes, const void *recvbuf,
                                       const char **name) {
    return guarded([&]() -> Status {
        FLX_TRY(check_comm(comm));
        FLX_TRY(need(collective, "collective"));
        FLX_TRY(need(name, "name"));
        return comm->impl->device_way(collective, bytes, recvbuf, *name);
    });
}

flx_status_t flx_counters(flx_counters_t *counters) {
    return guarded([&]() -> Status {
        FLX_TRY(need(counters, "counters"));
        const size_t bytes = counters->struct_size;
        if (!flx::is_size_of<flx_counters_t>(bytes, offsetof(flx_counters_t, operations)))
            return fail(Fault::struct_size, "counters->struct_size is {}; sizeof(flx_counters_t) is {}", bytes,
                        sizeof(flx_counters_t));
        const flx::Telemetry &telemetry = flx::telemetry();
        const flx_counters_t all{bytes, telemetry.operations.sum(), telemetry.allocations, telemetry.registrations,
                                 telemetry.locks.sum()};
        flx::write_sized(all, counters, bytes);
        return {};
    });
}

flx_status_t flx_report(flx_comm_t comm, void (*line)(const char *text, void *arg), void *arg) {
    return guarded([&]() -> Status {
        FLX_TRY(need(reinterpret_cast<const void *>(line), "line"));
        std::vector<std::string> lines;
        Status status;
        {
            std::unique_lock<std::recursive_mutex> lock;
            if (comm != nullptr)
                lock = comm->impl->guard();
            status = flx::report(comm == nullptr ? nullptr : comm->impl.get(), lines);
        }
        for (const std::string &text : lines)
            line(text.c_str(), arg);
        return status;
    });
}

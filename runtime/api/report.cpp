#include "runtime/api/report.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <string_view>

#include "probe/network.h"
#include "probe/topology.h"
#include "runtime/base/config.h"
#include "runtime/elements/reduce.h"

namespace flx {
namespace {

void indent(std::vector<std::string> &lines, const std::vector<std::string> &more) {
    for (const std::string &line : more)
        lines.push_back("  " + line);
}

Status report_machine(std::vector<std::string> &lines) {
    probe::Topology topology;
    FLX_TRY(probe::read_topology(topology));
    indent(lines, probe::describe(topology));
    std::vector<probe::NetworkDevice> devices;
    FLX_TRY(probe::network_devices(devices));
    for (const probe::NetworkDevice &device : devices)
        indent(lines, probe::describe(device));
    lines.push_back(fmt::format("  reductions use {}", reduce_target()));
    return {};
}

std::string size_text(size_t bytes) {
    constexpr size_t kKiB = 1024;
    if (bytes >= kKiB * kKiB)
        return fmt::format("{:.4g} MiB", static_cast<double>(bytes) / (kKiB * kKiB));
    return bytes >= kKiB ? fmt::format("{:.4g} KiB", static_cast<double>(bytes) / kKiB) : fmt::format("{} B", bytes);
}

std::string describe(const LinkMeasured &measured, const char *where) {
    if (!measured.done || measured.bytes_per_ns == 0)
        return {};
    return fmt::format("  {} {:.1f} us, {:.3f} GB/s alone, {:.3f} with the others", where, measured.latency_ns / 1e3,
                       measured.bytes_per_ns, measured.together_bytes_per_ns);
}

void report_links(const Communicator &comm, std::vector<std::string> &lines) {
    lines.emplace_back("[links]");
    lines.push_back(fmt::format("  as rank {} of {} on {} host(s) sees them; probed in {:.0f} ms", comm.rank(),
                                comm.size(), comm.hosts(), comm.probe_ns() / 1e6));
    if (!comm.measured().empty())
        lines.push_back("  " + comm.measured());
    for (const LinkSlot &slot : comm.links()) {
        lines.push_back(fmt::format("  {:<12} {:<4}{}{}{}", slot.name, slot.why_off.empty() ? "on" : "off",
                                    describe(slot.near, "near"), describe(slot.far, "far"),
                                    slot.why_off.empty() ? "" : "  " + slot.why_off));
    }
    const ucx::FailoverCounters counters = comm.process()->failover_counters();
    if (counters.losses != 0)
        lines.push_back(fmt::format("  rails of this process: lost {} times, {} chunks sent again, back {} times",
                                    counters.losses, counters.resent, counters.returns));
    if (counters.relayed != 0)
        lines.push_back(fmt::format("  relayed for others: {} messages, at most {} B at a time", counters.relayed,
                                    counters.relayed_most_bytes));
    for (const std::string &sentence : comm.liveness_notes())
        lines.push_back("  liveness: " + sentence);
    for (const std::string &sentence : comm.sharing())
        lines.push_back("  " + sentence);
    for (const auto &[name, why] : comm.left_off())
        lines.push_back(fmt::format("  {:<12} off   {}", name, why));
}

/// As a string of TOML and of JSON alike, quotes included: a line of printed characters.
std::string quoted(std::string text) {
    std::ranges::replace_if(
        text, [](unsigned char one) { return one < ' ' || one == 0x7F; }, '?');
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// What plans between hosts reckon with, as lines of TOML: with `ranks` where all hosts have as many, and with what
/// rails deliver where that was measured. flx_simulate reads them as a machine.
void report_costs(const Communicator &comm, std::vector<std::string> &lines) {
    if (comm.hosts() == 1)
        return;
    std::vector<int> ranks(static_cast<size_t>(comm.hosts()));
    for (const Member &member : comm.members())
        ++ranks[static_cast<size_t>(member.host)];
    const int rails = comm.measured_rails();
    const auto add = [&](const char *name, const auto &value) {
        lines.push_back(fmt::format("  {} = {}", name, value));
    };
    const auto add_tier = [&](const std::string &name, const algorithms::TierCost &tier) {
        add((name + ".latency_ns").c_str(), tier.latency_ns);
        add((name + ".send_ns").c_str(), tier.send_ns);
        add((name + ".receive_ns").c_str(), tier.receive_ns);
    };
    const algorithms::CostModel &costs = comm.costs();
    lines.emplace_back("[costs]");
    lines.emplace_back(
        "  # what plans reckon with, in ns and GB/s: between hosts made of what probing measured, nominal where it "
        "measured "
        "nothing and within one");
    add("name", quoted(comm.members().front().hostname + " and hosts beside it"));
    add("hosts", comm.hosts());
    if (std::ranges::count(ranks, ranks.front()) == comm.hosts())
        add("ranks", ranks.front());
    add_tier("near", costs.near);
    add("near.bandwidth", costs.near.bytes_per_ns);
    add("near.copy", costs.copy_bytes_per_ns);
    add("near.add", costs.add_bytes_per_ns);
    if (rails == 0)
        return;
    add("far.rails", rails);
    add_tier("far", costs.far);
    add("far.bandwidth", costs.far.bytes_per_ns / rails);
}

/// `GPU 0 copied 1536 MiB of memory of flx_malloc, the cores 1024 MiB beside it`
std::string report_copies(const shm::PeerMemory &memory) {
    constexpr uint64_t kMiB = 1 << 20;
    const shm::EngineReach &reach = *memory.engine_reach();
    if (!reach.why_none().empty())
        return "the cores alone copy memory of flx_malloc: " + reach.why_none();
    if (reach.engine() == nullptr)
        return "the cores alone copy memory of flx_malloc: no large copy yet in a program that uses a GPU "
               "(FLX_COPY_ENGINE)";
    return fmt::format("{} copied {} MiB of memory of flx_malloc, the cores {} MiB beside it", reach.engine()->name(),
                       memory.copies().engine_bytes() / kMiB, memory.copies().core_bytes() / kMiB);
}

void report_shared_memory(const Communicator &comm, std::vector<std::string> &lines) {
    const shm::HostWays *ways = comm.host_ways();
    if (ways == nullptr || comm.size() == 1)
        return;
    lines.emplace_back("[shared memory]");
    const std::string &not_by_kernel = ways->why_not_by_kernel();
    lines.push_back(not_by_kernel.empty() ? "  ranks reach each other's buffers through the kernel"
                                          : "  ranks do not reach each other's buffers: " + not_by_kernel);
    const std::string &not_mapped = ways->why_not_mapped();
    lines.push_back(not_mapped.empty() ? "  ranks map each other's memory of flx_malloc"
                                       : "  ranks do not map each other's memory of flx_malloc: " + not_mapped);
    if (const shm::PeerMemory *copies = ways->copies_by_engine(); copies != nullptr)
        lines.push_back("  " + report_copies(*copies));
}

void report_devices(const Communicator &comm, std::vector<std::string> &lines) {
    lines.emplace_back("[gpus]");
    if (cuda::why_none().empty() && comm.too_many_for_gpus())
        lines.push_back(
            fmt::format("  by way of host memory: all on GPU memory, as GPUs of a host carry out calls of {} "
                        "ranks at most",
                        cuda::kMaxRanks));
    else if (cuda::why_none().empty())
        lines.emplace_back(
            "  by way of host memory: what is neither allreduce, reduce, reduce_scatter_block, "
            "allgather, bcast nor alltoall on GPU memory (of alltoallv what is in place or does not "
            "block), and reductions and types that GPUs do not have");
    if (comm.devices() == nullptr) {
        const std::string &why = cuda::why_none();
        lines.push_back(fmt::format("  not used: {}", why.empty() ? "no collective on GPU memory was called" : why));
        if (comm.hosts() > 1)
            lines.push_back(
                fmt::format("  between hosts GPU memory goes through pinned host memory (FLX_CUDA_PINNED={}) and the "
                            "links above, within them by NVLink where hosts have as many ranks (FLX_CUDA_TIERS={})",
                            comm.config().value("FLX_CUDA_PINNED"), comm.config().value("FLX_CUDA_TIERS")));
        return;
    }
    indent(lines, comm.devices()->report());
}

/// `fused to 22 KiB, fetched to 24 MiB, then streamed`, whatever the choice comes from.
std::string by_size(const Communicator &comm, algorithms::Collective collective, bool steps) {
    // Sizes are looked at in steps of a sixteenth of their power of two, and where the answer differs, in between.
    constexpr size_t kMost = size_t{1} << 40;
    constexpr size_t kParts = 16;
    std::string text;
    const auto name = [&](size_t bytes) {
        return std::string_view(comm.way_name(collective, bytes, {.steps = steps}));
    };
    size_t at = 0;
    std::string_view now = name(at);
    for (size_t next = 1; next <= kMost; next += std::max<size_t>(1, std::bit_floor(next) / kParts)) {
        while (name(next) != now) {
            size_t beyond = next;
            while (beyond - at > 1) {
                const size_t middle = at + (beyond - at) / 2;
                (name(middle) == now ? at : beyond) = middle;
            }
            const bool rule = beyond % 1024 == 0;  // whose sizes end before TO
            text += fmt::format("{} {} {}, ", now, rule ? "below" : "to", size_text(rule ? beyond : at));
            at = beyond;
            now = name(at);
        }
        at = next;
    }
    return text.empty() ? std::string(now) : fmt::format("{}then {}", text, now);
}

/// What was predicted where hosts have several ranks, so that a prediction can be compared with what flx_perf measures.
void report_candidates(const Communicator &comm, std::vector<std::string> &lines) {
    constexpr std::array<size_t, 4> kSizes = {size_t{64}, size_t{8} << 10, size_t{512} << 10, size_t{16} << 20};
    if (comm.candidates(algorithms::Collective::allreduce, 1).empty())
        return;
    lines.emplace_back(
        "  predicted from what links deliver, in microseconds; sums go by what adds in the order that was chosen:");
    for (const algorithms::Traits &traits : algorithms::kTraits) {
        for (const size_t bytes : kSizes) {
            std::string text;
            for (const Planner::Candidate &one : comm.candidates(traits.collective, bytes))
                text += fmt::format("{}{} {:.0f}", text.empty() ? "" : ", ", one.choice.name(), one.ns / 1e3);
            if (!text.empty())
                lines.push_back(fmt::format("  {:<20} some {}: {}", traits.name, size_text(bytes), text));
        }
    }
}

void report_choices(const Communicator &comm, std::vector<std::string> &lines) {
    lines.push_back(
        fmt::format("  here, {} ranks on {} host(s), by bytes of the whole vector:", comm.size(), comm.hosts()));
    for (const algorithms::Traits &traits : algorithms::kTraits) {
        const std::string blocking = by_size(comm, traits.collective, false);
        const std::string steps = by_size(comm, traits.collective, true);
        lines.push_back(
            fmt::format("  {:<20} {}{}", traits.name, blocking, blocking == steps ? "" : "; non-blocking: " + steps));
    }
    report_candidates(comm, lines);
    const shm::Review *review = comm.host_ways() != nullptr ? comm.host_ways()->review() : nullptr;
    if (review != nullptr)
        lines.push_back(fmt::format("  ways through shared memory were looked at again {} times, which changed {}",
                                    review->looks(), review->changes()));
}

/// `  allreduce near 256 KiB: fetched (fused 210 us, fetched 92 us, looks since the trial: 1)`
void report_decisions(const Communicator &comm, std::vector<std::string> &lines) {
    const std::vector<Decision> decisions = comm.explain();
    if (decisions.empty())
        return;
    lines.emplace_back("[decisions]");
    for (const auto &[about, bytes, decided, from] : decisions)
        lines.push_back(
            fmt::format("  {}{}: {} ({})", about, bytes == 0 ? "" : " near " + size_text(bytes), decided, from));
}

void report_algorithms(const Communicator *comm, std::vector<std::string> &lines) {
    lines.emplace_back("[algorithms]");
    lines.push_back(
        fmt::format("  {:<20} one host, small: every rank reads every rank's input in shared memory", "fused"));
    lines.push_back(fmt::format(
        "  {:<20} one host, large: blocks of all regions staged, reduced and fetched in the cache", "streamed"));
    lines.push_back(fmt::format(
        "  {:<20} one host, middle: ranks read and write each other's buffers through the kernel", "fetched"));
    lines.push_back(fmt::format(
        "  {:<20} send and recv, and alltoall(v), gatherv and scatterv where they are not by hosts: a message "
        "per pair of ranks, all at once",
        "exchange"));
    for (const algorithms::Algorithm &algorithm : algorithms::all()) {
        std::string served;
        for (const algorithms::Collective collective : algorithms::kScheduled) {
            if (algorithm.serves(collective, 2))
                served += fmt::format("{}{}", served.empty() ? "" : ", ", algorithms::name_of(collective));
        }
        lines.push_back(
            fmt::format("  {:<20} {}: {} ({})", algorithm.name, served, algorithm.description, algorithm.source));
    }
    if (comm != nullptr && comm->size() > 1)
        report_choices(*comm, lines);
}

void report_knobs(const Config &config, std::vector<std::string> &lines) {
    for (const KnobTier tier : {KnobTier::user, KnobTier::expert}) {
        if (tier == KnobTier::expert)
            lines.emplace_back("  for experts:");
        for (const Knob &knob : knobs()) {
            if (knob.tier != tier)
                continue;
            const std::string &text = config.value(knob.name);
            lines.push_back(fmt::format("  {:<18} {:<10} {:<14} {}", knob.name, text.empty() ? "-" : text,
                                        config.origin(knob.name), knob.doc));
        }
    }
}

}  // namespace

Status report(const Communicator *comm, std::vector<std::string> &lines) {
    lines.emplace_back("[machine]");
    Status status = report_machine(lines);
    if (!status.ok())
        lines.push_back("  not known: " + status.sentence());
    if (comm != nullptr) {
        report_links(*comm, lines);
        report_costs(*comm, lines);
        report_shared_memory(*comm, lines);
        report_devices(*comm, lines);
        report_decisions(*comm, lines);
    }
    report_algorithms(comm, lines);
    lines.emplace_back("[knobs]");
    if (comm != nullptr) {
        report_knobs(comm->config(), lines);
        return status;
    }
    Config environment;
    std::vector<Status> wrong;
    Config::from_environment(environment, wrong);
    for (const Status &each : wrong)
        lines.push_back("  wrong: " + each.sentence());
    report_knobs(environment, lines);
    return status.ok() && !wrong.empty() ? wrong.front() : status;
}

}  // namespace flx

#include "apps/flx_simulate/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "apps/traces/reader.h"

namespace flx::simulate {
namespace {

using algorithms::Collective;
using nlohmann::ordered_json;
using traces::Event;

constexpr double kMostBytes = 1e15;  ///< of a vector: numbers beyond are no lengths

/// Which calls of a trace are to be predicted. A call is taken of the first rank in the trace that has its
/// communicator.
class Calls {
  public:
    explicit Calls(Program &program) : program_(program) {}

    void take(const Event &event) {
        if (event.phase == 'M')
            introduce(event);
        else if ((event.phase == 'X' && (event.category == "call" || event.category == "gpu")) ||
                 (event.phase == 'b' && event.category == "nonblocking"))
            call(event);
    }

  private:
    /// A communicator as one of its ranks has it.
    struct Membership {
        size_t communicator = 0;
        bool first = false;
    };

    void introduce(const Event &event) {
        if (event.name != "communicator")
            return;
        constexpr double kMostSize = 1 << 24;
        const double size = event.number("size", 0);
        if (!(size >= 1 && size <= kMostSize))
            return;
        std::tuple key{event.number("communicator", 0), std::string(event.text("first_uid")), size};
        const auto [place, is_new] = known_.try_emplace(std::move(key), program_.communicators.size());
        if (is_new)
            program_.communicators.push_back({static_cast<int>(size), {}, {}});
        std::vector<int64_t> &members = program_.communicators[place->second].members;
        if (!is_new && members.back() == event.pid)
            return;
        members.push_back(event.pid);
        memberships_[{event.pid, event.tid}] = {place->second, is_new};
        program_.ranks = std::max(program_.ranks, static_cast<int64_t>(size));
    }

    void call(const Event &event) {
        if (event.name == "flx_comm_free")
            return;
        const auto member = memberships_.find({event.pid, event.tid});
        if (event.name == "messages" || event.text("way") == "served by MPI" || member == memberships_.end()) {
            ++program_.left_out[event.name == "messages"               ? "messages of two ranks, on all ranks"
                                : event.text("way") == "served by MPI" ? "served by MPI, on all ranks"
                                                                       : "on communicators that the trace lacks"];
            return;
        }
        if (!member->second.first)
            return;
        ProgramCommunicator &communicator = program_.communicators[member->second.communicator];
        const auto collective = algorithms::parse_collective(event.name);
        const double bytes = event.number("bytes", 0);
        if (const std::string why = why_not(event, collective, bytes, communicator.size); !why.empty()) {
            ++program_.left_out[why];
            return;
        }
        const CallKind kind{*collective, *collective == Collective::barrier ? 0 : static_cast<size_t>(bytes),
                            event.phase == 'X'};
        CallSum &sum = communicator.calls[kind];
        ++sum.calls;
        sum.traced_us += event.for_us;
    }

    static std::string why_not(const Event &event, std::optional<Collective> collective, double bytes, int size) {
        if (!collective)
            return "of other names than collectives have";
        if (event.category == "gpu" || event.find("gpu_call") != nullptr)  // the latter where it does not block
            return "on GPU memory";
        if (!event.text("error").empty())
            return "that ended with an error";
        if (event.number("unfinished", 0) != 0)
            return "that did not end";
        if (size == 1)
            return "of one rank alone";
        if (algorithms::traits_of(*collective).between_pairs)
            return fmt::format("{}, of which the trace has no lengths", event.name);
        if (*collective != Collective::barrier && !(bytes >= 1 && bytes <= kMostBytes))
            return "of no bytes";
        return {};
    }

    Program &program_;
    std::map<std::tuple<double, std::string, double>, size_t> known_;
    std::map<std::pair<int64_t, int64_t>, Membership> memberships_;
};

/// Where a communicator of the program is on the machine.
struct Place {
    int hosts = 0;
    int ranks = 0;  ///< of a host
    std::string why_not;
};

Place place_of(const Machine &machine, const Program &program, const ProgramCommunicator &communicator) {
    if (communicator.size == program.ranks)
        return {machine.hosts, machine.ranks, {}};
    if (program.ranks != machine.size())
        return {0, 0, "on parts of the ranks, as the machine has another number of ranks than the program"};
    if (communicator.members.size() != static_cast<size_t>(communicator.size))
        return {0, 0, "on communicators of which ranks are not in the trace"};
    std::map<int64_t, int> hosts;
    for (const int64_t rank : communicator.members)
        ++hosts[rank / machine.ranks];
    if (hosts.size() == 1)
        return {0, 0, "on parts of one host's ranks, of which there is no model"};
    const int ranks = hosts.begin()->second;
    if (std::ranges::any_of(hosts, [&](const auto &host) { return host.second != ranks; }))
        return {0, 0, "on different numbers of ranks of each host"};
    return {static_cast<int>(hosts.size()), ranks, {}};
}

/// Calls with blocks of given lengths are reckoned as those of equal ones.
Collective reckoned_as(Collective collective) {
    return algorithms::scheduled_as(collective).value_or(collective);
}

/// The bytes of such a call among so many ranks, of `size` in the program; nothing: there is no such call.
std::optional<size_t> bytes_among(const CallKind &kind, int size, int ranks) {
    if (kind.collective == Collective::barrier)
        return sizeof(double);
    if (!has_blocks(reckoned_as(kind.collective)))
        return kind.bytes;
    const size_t block = kind.bytes / static_cast<size_t>(size);
    const double bytes = static_cast<double>(block) * ranks;
    return block == 0 || bytes > kMostBytes ? std::nullopt : std::optional(block * static_cast<size_t>(ranks));
}

}  // namespace

std::string read_program(std::istream &stream, const std::string &name, Program &program) {
    traces::TraceReader reader(stream, name);
    traces::Header header;
    if (!reader.begin(header))
        return reader.problem();
    program.ranks = header.ranks;
    program.notes = header.notes;
    Calls calls(program);
    while (const Event *event = reader.next())
        calls.take(*event);
    if (!reader.problem().empty())
        return reader.problem();
    if (reader.truncated())
        program.notes.emplace_back("the trace is cut off");
    return {};
}

ProgramTimes run_program(const Machine &machine, const Program &program,
                         const std::function<void(size_t, size_t)> &done) {
    ProgramTimes times;
    times.left_out = program.left_out;
    // Calls that are alike on the machine, whichever communicator has them: hosts, ranks of one, whether it waits,
    // bytes.
    using Key = std::tuple<int, int, Collective, bool, size_t>;
    std::map<std::pair<int, int>, Machine> machines;
    std::map<Key, std::vector<size_t>> rows_of;
    for (const ProgramCommunicator &communicator : program.communicators) {
        const Place place = place_of(machine, program, communicator);
        for (const auto &[kind, sum] : communicator.calls) {
            const auto bytes = bytes_among(kind, communicator.size, place.hosts * place.ranks);
            if (!place.why_not.empty() || !bytes) {
                times.left_out[place.why_not.empty() ? "of no bytes" : place.why_not] += sum.calls;
                continue;
            }
            if (const auto [part, is_new] = machines.try_emplace({place.hosts, place.ranks}, machine); is_new) {
                part->second.hosts = place.hosts;
                part->second.ranks = place.ranks;
                part->second.part = place.hosts != machine.hosts || place.ranks != machine.ranks;
            }
            std::vector<size_t> &rows = rows_of[{place.hosts, place.ranks, kind.collective, kind.waits, *bytes}];
            const auto same =
                std::ranges::find_if(rows, [&, &kind = kind](size_t row) { return times.rows[row].kind == kind; });
            if (same == rows.end()) {
                rows.push_back(times.rows.size());
                times.rows.push_back({kind, place.hosts * place.ranks, place.hosts, sum, {}});
            } else {
                times.rows[*same].sum.calls += sum.calls;
                times.rows[*same].sum.traced_us += sum.traced_us;
            }
        }
    }
    std::vector<Asked> asked;
    std::vector<std::vector<const std::vector<size_t> *>> asked_of;
    for (const auto &[key, rows] : rows_of) {
        const auto &[hosts, ranks, collective, waits, bytes] = key;
        const Machine *part = &machines.at({hosts, ranks});
        if (asked.empty() || asked.back().machine != part || asked.back().collective != reckoned_as(collective)) {
            asked.push_back({part, reckoned_as(collective), {}});
            asked_of.emplace_back();
        }
        asked.back().calls.push_back({bytes, !waits});
        asked_of.back().push_back(&rows);
    }
    const std::vector<std::vector<Cell>> cells = run_rows(asked, [&](size_t ready) { done(ready, rows_of.size()); });
    for (size_t i = 0; i < cells.size(); ++i)
        for (size_t j = 0; j < cells[i].size(); ++j)
            for (const size_t row : *asked_of[i][j])
                times.rows[row].cell = cells[i][j];
    for (const ProgramRow &row : times.rows) {
        const auto calls = static_cast<double>(row.sum.calls);
        times.calls += row.sum.calls;
        times.ns += calls * row.cell.choice().ns;
        times.best_ns += calls * row.cell.best().ns;
    }
    std::ranges::stable_sort(times.rows, std::greater<>(), [](const ProgramRow &row) {
        return static_cast<double>(row.sum.calls) * row.cell.choice().ns;
    });
    return times;
}

std::string program_text(const Machine &machine, const Program &program, const ProgramTimes &times) {
    std::string text =
        fmt::format("{} calls of a program of {} ranks, on {} ranks\n", times.calls, program.ranks, machine.size());
    for (const std::string &note : program.notes)
        text += fmt::format("in the trace: {}\n", note);
    text += fmt::format("{:<22} {:>11} {:>6} {:>5} {:>8} {:>11} {:>10} {:>5}  {:<34} {:<34} {:>6} {:>11}\n",
                        "collective", "bytes", "ranks", "hosts", "calls", "us", "all, ms", "%", "FLX chooses",
                        "the best", "times", "traced, us");
    for (const ProgramRow &row : times.rows) {
        const auto calls = static_cast<double>(row.sum.calls);
        const double all = calls * row.cell.choice().ns;
        text +=
            fmt::format("{:<22} {:>11} {:>6} {:>5} {:>8} {:>11.1f} {:>10.3f} {:>5.1f}  {:<34} {:<34} {:>6.2f} {:>11}\n",
                        fmt::format("{}{}", row.kind.waits ? "" : "i", algorithms::name_of(row.kind.collective)),
                        row.cell.bytes, row.ranks, row.hosts, row.sum.calls, row.cell.choice().ns / 1e3, all / 1e6,
                        100 * all / times.ns, row.cell.choice().name, row.cell.best().name, row.cell.worse(),
                        row.kind.waits ? fmt::format("{:.1f}", row.sum.traced_us / calls) : "-");
    }
    text += fmt::format("all: {:.3f} ms by what FLX chooses, {:.3f} ms by the best candidates\n", times.ns / 1e6,
                        times.best_ns / 1e6);
    for (const auto &[why, calls] : times.left_out)
        text += fmt::format("left out, {}: {}\n", why, calls);
    return text;
}

std::string program_json(const Machine &machine, const Program &program, const ProgramTimes &times) {
    ordered_json json;
    json["machine"] = {{"name", machine.name}, {"hosts", machine.hosts}, {"ranks_of_a_host", machine.ranks}};
    json["program"] = {{"ranks", program.ranks},
                       {"calls", times.calls},
                       {"us", times.ns / 1e3},
                       {"best_us", times.best_ns / 1e3},
                       {"notes", program.notes}};
    json["left_out"] = ordered_json::array();
    for (const auto &[why, calls] : times.left_out)
        json["left_out"].push_back({{"why", why}, {"calls", calls}});
    json["rows"] = ordered_json::array();
    for (const ProgramRow &row : times.rows) {
        ordered_json one = {{"collective", algorithms::name_of(row.kind.collective)},
                            {"blocking", row.kind.waits},
                            {"bytes", row.cell.bytes},
                            {"traced_bytes", row.kind.bytes},
                            {"ranks", row.ranks},
                            {"hosts", row.hosts},
                            {"calls", row.sum.calls},
                            {"us", row.cell.choice().ns / 1e3},
                            {"chosen", row.cell.choice().name},
                            {"best", row.cell.best().name},
                            {"best_us", row.cell.best().ns / 1e3}};
        if (row.kind.waits)
            one["traced_us"] = row.sum.traced_us / static_cast<double>(row.sum.calls);
        json["rows"].push_back(std::move(one));
    }
    return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace flx::simulate

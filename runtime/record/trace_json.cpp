#include "runtime/record/trace_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "runtime/plan/call_log.h"
#include "runtime/record/reader.h"
#include "runtime/record/trace_clocks.h"
#include "runtime/record/trace_part.h"

namespace flx::record {
namespace {

/// Rows of links are behind those of communicators, whose ids only grow.
uint64_t row_of(uint32_t comm, uint64_t link) {
    constexpr uint64_t kFirst = 1'000'000'000;
    return kFirst + comm * kLinks + link;
}

/// As a JSON string, quotes included.
std::string json_text(std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

EntryKind kind_of(const Entry &entry) {
    return static_cast<EntryKind>(entry.kind.load(std::memory_order_acquire));
}

Where where_of(const Entry &entry) {
    return std::bit_cast<Where>(entry.where.load(std::memory_order_relaxed));
}

std::array<uint64_t, 4> data_of(const Entry &entry) {
    std::array<uint64_t, 4> data{};
    for (size_t i = 0; i < data.size(); ++i)
        data[i] = entry.data[i].load(std::memory_order_relaxed);
    return data;
}

struct CommunicatorEntry {
    uint32_t id = 0;
    int rank = 0;
    int size = 0;
    int hosts = 0;
    uint64_t first_uid = 0;
};

CommunicatorEntry communicator_of(const Entry &entry) {
    const std::array<uint64_t, 4> data = data_of(entry);
    return {static_cast<uint32_t>(data[0]), static_cast<int>(data[0] >> 32U), static_cast<int>(data[1]),
            static_cast<int>(data[1] >> 32U), data[2]};
}

std::string link_name_of(const Entry &entry) {
    const auto text = std::bit_cast<std::array<char, 32>>(data_of(entry));
    return {text.data(), strnlen(text.data(), text.size())};
}

/// Its name, which two hosts may have in common as containers do, and its boot id.
using Host = std::pair<std::string, std::string>;
Host host_of(const TracePart &part) {
    return {part.hostname(), part.boot()};
}

/// The clocks of all hosts. The common one is that of the first rank's host; others are known by communicators whose
/// rank 0 was there.
std::map<Host, HostClock> clocks_of(const std::vector<TracePart> &parts) {
    const Host common = host_of(parts.front());
    std::set<std::pair<uint32_t, uint64_t>> led_there;
    for (const TracePart &part : parts) {
        if (host_of(part) != common)
            continue;
        for (const Entry &entry : part.entries())
            if (kind_of(entry) == EntryKind::communicator)
                if (const CommunicatorEntry comm = communicator_of(entry); comm.rank == 0)
                    led_there.insert({comm.id, comm.first_uid});
    }
    std::map<Host, std::vector<ClockSample>> samples;
    std::map<Host, int64_t> by_date;
    const auto ahead = [](const TracePart &part) { return part.head().made_ns - part.head().made_since_ns; };
    for (const TracePart &part : parts) {
        const Host host = host_of(part);
        by_date.emplace(host, ahead(part) - ahead(parts.front()));
        std::array<bool, 256> usable{};  // by place
        for (const Entry &entry : part.entries()) {
            const Where where = where_of(entry);
            if (kind_of(entry) == EntryKind::communicator) {
                const CommunicatorEntry comm = communicator_of(entry);
                usable[where.place] = led_there.count({comm.id, comm.first_uid}) != 0;
            } else if (kind_of(entry) == EntryKind::clock && usable[where.place]) {
                const std::array<uint64_t, 4> data = data_of(entry);
                samples[host].push_back({entry.begin.load(std::memory_order_relaxed), static_cast<int64_t>(data[0]),
                                         static_cast<int64_t>(data[1])});
            }
        }
    }
    std::map<Host, HostClock> clocks;
    for (const auto &[host, date] : by_date) {
        constexpr size_t kShort = 8;
        const auto is_named = [&name = host.first](const auto &other) { return other.first.first == name; };
        const std::string shown = std::count_if(by_date.begin(), by_date.end(), is_named) == 1
                                      ? host.first
                                      : fmt::format("{} {}", host.first, host.second.substr(0, kShort));
        clocks[host] = host == common ? HostClock(shown) : HostClock(shown, samples[host], date);
    }
    return clocks;
}

/// Text that goes to a file by the megabyte.
class Output {
  public:
    explicit Output(std::FILE *file) : file_(file) {}
    template <typename... Args>
    void line(fmt::format_string<Args...> format, Args &&...args) {
        fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
        constexpr size_t kFull = 1 << 20;
        if (text_.size() >= kFull)
            flush();
    }
    void flush() {
        failed_ = std::fwrite(text_.data(), 1, text_.size(), file_) != text_.size() || failed_;
        text_.clear();
    }
    [[nodiscard]] bool failed() const { return failed_; }

  private:
    std::FILE *file_;
    fmt::memory_buffer text_;
    bool failed_ = false;
};

/// Writes the events of one part.
class PartWriter {
  public:
    PartWriter(const TracePart &part, int rank, const HostClock &clock, int64_t began_ns, Output &output)
        : part_(part),
          rank_(rank),
          clock_(clock),
          began_ns_(began_ns),
          output_(output),
          last_ns_(part.head().made_ns) {}

    uint64_t write() {
        name("process_name", 0, json_text(fmt::format("rank {} ({}, pid {})", rank_, clock_.host(), part_.head().pid)));
        output_.line(R"({{"ph":"M","name":"process_sort_index","pid":{0},"args":{{"sort_index":{0}}}}},)"
                     "\n",
                     rank_);
        for (const Entry &entry : part_.entries())
            last_ns_ = std::max(last_ns_, end_of(entry));
        uint64_t calls = 0;
        for (const Entry &entry : part_.entries())
            switch (kind_of(entry)) {
                case EntryKind::none:
                case EntryKind::clock:
                    break;
                case EntryKind::call:
                    write_call(entry);
                    ++calls;
                    break;
                case EntryKind::wait:
                    write_wait(entry);
                    break;
                case EntryKind::phase:
                    write_phase(entry);
                    break;
                case EntryKind::link:
                    write_link(entry);
                    break;
                case EntryKind::communicator:
                    write_communicator(entry);
                    break;
                case EntryKind::link_name:
                    links_[where_of(entry).place][where_of(entry).number] = link_name_of(entry);
                    break;
            }
        return calls;
    }

  private:
    [[nodiscard]] int64_t end_of(const Entry &entry) const {
        const int64_t end = entry.end.load(std::memory_order_relaxed);
        switch (kind_of(entry)) {
            case EntryKind::call:
                return part_.ns(end != 0 ? end : entry.begin.load(std::memory_order_relaxed));
            case EntryKind::wait:
            case EntryKind::phase:
            case EntryKind::link:
                return end;
            default:
                return 0;
        }
    }
    /// On the common clock, since the beginning.
    [[nodiscard]] double us(int64_t ns) const { return static_cast<double>(clock_.common(ns) - began_ns_) / 1e3; }

    void name(const char *what, uint64_t row, const std::string &text) {
        output_.line(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":{}}}}},)"
                     "\n",
                     what, rank_, row, text);
    }

    void write_communicator(const Entry &entry) {
        const CommunicatorEntry comm = communicator_of(entry);
        const Where where = where_of(entry);
        comms_[where.place] = comm;
        links_[where.place].clear();
        shares_.erase(where.place);
        spans_.erase(where.place);
        name("thread_name", comm.id, json_text(name_of_communicator(comm.id)));
        output_.line(R"({{"ph":"M","name":"communicator","pid":{},"tid":{},"args":{{"communicator":{},"rank":{},)"
                     R"("size":{},"hosts":{},"first_uid":"{:x}"}}}},)"
                     "\n",
                     rank_, comm.id, comm.id, comm.rank, comm.size, comm.hosts, comm.first_uid);
    }

    void write_call(const Entry &entry) {
        const Where where = where_of(entry);
        const auto what = std::bit_cast<CallRecord>(data_of(entry));
        const uint32_t comm = comms_[where.place].id;
        const int64_t begin = part_.ns(entry.begin.load(std::memory_order_relaxed));
        const int64_t ended = entry.end.load(std::memory_order_relaxed);
        const int64_t end = std::max(begin, ended != 0 ? part_.ns(ended) : last_ns_);
        const bool on_gpus = where.carrier == Carrier::stream || where.carrier == Carrier::gpu;
        std::string args = fmt::format(R"("communicator":{},"{}":{},"way":"{}")", comm, on_gpus ? "gpu_call" : "number",
                                       where.number, way_of(where.carrier, where.way));
        if (what.dtype == CallRecord::kUntold && what.bytes != 0)
            args += fmt::format(R"(,"bytes":{})", what.bytes);
        if (const std::string dtype = dtype_of(what); !dtype.empty())
            args += fmt::format(R"(,"bytes":{},"type":"{}")", what.bytes, dtype);
        if (const std::string reduction = reduction_of(what); !reduction.empty())
            args += fmt::format(R"(,"reduction":"{}")", reduction);
        if (where.number == 0)
            args += fmt::format(R"(,"bytes":{},"peer":{})", what.bytes, what.root);
        else if (has_root(what))
            args += fmt::format(R"(,"root":{})", what.root);
        if (where.error != 0)
            args += fmt::format(R"(,"error":"{}")", name_of(static_cast<flx_status_t>(where.error)));
        if (ended == 0)
            args += R"(,"unfinished":true)";
        const std::string_view called = what.kind == CallKind::freed ? "flx_comm_free"
                                        : where.number == 0          ? "messages"
                                                                     : algorithms::name_of(what.collective);
        if (what.kind == CallKind::non_blocking) {  // these overlap
            const std::string id = fmt::format("{}.{}", rank_, ++asynchronous_);
            if (where.carrier == Carrier::flx)
                note_span(where, {begin, end, id});
            output_.line(R"({{"ph":"b","cat":"nonblocking","id":"{}","name":"{}","pid":{},"tid":{},"ts":{:.3f},)"
                         R"("args":{{{}}}}},)"
                         "\n",
                         id, called, rank_, comm, us(begin), args);
            output_.line(R"({{"ph":"e","cat":"nonblocking","id":"{}","name":"{}","pid":{},"tid":{},"ts":{:.3f}}},)"
                         "\n",
                         id, called, rank_, comm, us(end));
            return;
        }
        if (where.carrier == Carrier::flx)  // others have numbers of their own, and no phases
            note_span(where, {begin, end, {}});
        output_.line(R"({{"ph":"X","cat":"{}","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
                     R"("args":{{{}}}}},)"
                     "\n",
                     on_gpus ? "gpu" : "call", called, rank_, comm, us(begin), static_cast<double>(end - begin) / 1e3,
                     args);
    }

    /// A call, for the phases that follow it.
    struct Span {
        int64_t begin = 0;
        int64_t end = 0;
        std::string id;  ///< of one that does not block
    };
    void note_span(const Where &where, Span span) {
        constexpr size_t kKept = 1024;  // calls of one communicator that are under way at once, and some that are not
        std::map<uint32_t, Span> &spans = spans_[where.place];
        spans[where.number] = std::move(span);
        if (spans.size() > kKept)
            spans.erase(spans.begin());
    }

    void write_phase(const Entry &entry) {
        const Where where = where_of(entry);
        const auto call = spans_[where.place].find(where.number);
        if (call == spans_[where.place].end())
            return;
        const Span &span = call->second;
        const int64_t end = std::clamp(entry.end.load(std::memory_order_relaxed), span.begin, span.end);
        const int64_t begin = std::clamp(entry.begin.load(std::memory_order_relaxed), span.begin, end);
        const std::array<uint64_t, 4> data = data_of(entry);
        const auto phase = static_cast<uint32_t>(data[0]);
        const auto part =
            data[1] <= static_cast<uint64_t>(Part::between_hosts) ? static_cast<Part>(data[1]) : Part::all;
        const std::string called =
            part != Part::all ? name_of(part) : fmt::format("phase {} of {}", phase + 1, data[0] >> 32U);
        const std::string args = fmt::format(R"("number":{},"bytes":{})", where.number, data[2]);
        const uint32_t comm = comms_[where.place].id;
        if (span.id.empty()) {
            output_.line(R"({{"ph":"X","cat":"phase","name":"{}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
                         R"("args":{{{}}}}},)"
                         "\n",
                         called, rank_, comm, us(begin), static_cast<double>(end - begin) / 1e3, args);
            return;
        }
        for (const bool begins : {true, false})
            output_.line(R"({{"ph":"{}","cat":"phase","id":"{}","name":"{}","pid":{},"tid":{},"ts":{:.3f},)"
                         R"("args":{{{}}}}},)"
                         "\n",
                         begins ? 'b' : 'e', span.id, called, rank_, comm, us(begins ? begin : end), args);
    }

    void write_wait(const Entry &entry) {
        const int64_t begin = entry.begin.load(std::memory_order_relaxed);
        const int64_t end = std::max(begin, entry.end.load(std::memory_order_relaxed));
        const auto peer = static_cast<int64_t>(data_of(entry)[0]);
        output_.line(R"({{"ph":"X","cat":"wait","name":"waits for {}","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
                     R"("args":{{"peer":{}}}}},)"
                     "\n",
                     peer < 0 ? "others" : fmt::format("rank {}", peer), rank_, comms_[where_of(entry).place].id,
                     us(begin), static_cast<double>(end - begin) / 1e3, peer);
    }

    void write_link(const Entry &entry) {
        const std::array<uint64_t, 4> data = data_of(entry);
        const uint8_t place = where_of(entry).place;
        const std::string &link = links_[place][data[0]];
        const uint32_t comm = comms_[place].id;
        const uint64_t row = row_of(comm, data[0]);
        const int64_t begin = entry.begin.load(std::memory_order_relaxed);
        const int64_t end = std::max(begin, entry.end.load(std::memory_order_relaxed));
        if (named_.insert(row).second)
            name("thread_name", row, json_text(fmt::format("{} of communicator {}", link, comm)));
        if (data[1] != 0)
            output_.line(R"({{"ph":"X","cat":"link","name":"{:.3f} MB","pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
                         R"("args":{{"link":{},"bytes":{},"MBps":{:.3f},"communicator":{}}}}},)"
                         "\n",
                         static_cast<double>(data[1]) / 1e6, rank_, row, us(begin),
                         static_cast<double>(end - begin) / 1e3, json_text(link), data[1],
                         static_cast<double>(data[1]) * 1e3 / static_cast<double>(std::max<int64_t>(end - begin, 1)),
                         comm);
        auto &shares = shares_[place];
        const bool is_on = data[3] != 0;
        auto &[share, was_on] = shares.try_emplace(data[0], std::pair(-1.0, true)).first->second;
        if (is_on != was_on)
            output_.line(R"({{"ph":"i","s":"p","cat":"link","name":{},"pid":{},"tid":{},"ts":{:.3f}}},)"
                         "\n",
                         json_text(link + (is_on ? " carries again" : " carries nothing")), rank_, row, us(end));
        was_on = is_on;
        const double now = std::bit_cast<double>(data[2]);
        const bool changed = now != share;
        share = now;
        if (!changed)
            return;
        std::string all;
        for (const auto &[index, state] : shares)
            all += fmt::format("{}{}:{:.4f}", all.empty() ? "" : ",", json_text(links_[place][index]),
                               std::max(state.first, 0.0));
        output_.line(R"({{"ph":"C","name":"shares of communicator {}","pid":{},"ts":{:.3f},"args":{{{}}}}},)"
                     "\n",
                     comm, rank_, us(end), all);
    }

    const TracePart &part_;
    const int rank_;
    const HostClock &clock_;
    const int64_t began_ns_;
    Output &output_;
    int64_t last_ns_;
    uint64_t asynchronous_ = 0;
    std::map<uint8_t, CommunicatorEntry> comms_;                             ///< by place
    std::map<uint8_t, std::map<uint64_t, std::string>> links_;               ///< by place and index
    std::map<uint8_t, std::map<uint64_t, std::pair<double, bool>>> shares_;  ///< likewise: the last one, and whether on
    std::map<uint8_t, std::map<uint32_t, Span>> spans_;                      ///< by place and number: the last calls
    std::set<uint64_t> named_;
};

/// By rank. A process whose launcher did not say its rank has what comes after the others.
std::vector<int> ranks_of(const std::vector<TracePart> &parts) {
    int next = 0;
    for (const TracePart &part : parts)
        next = std::max(next, part.head().world_rank + 1);
    std::vector<int> ranks;
    for (const TracePart &part : parts)
        ranks.push_back(part.head().world_rank >= 0 ? part.head().world_rank : next++);
    return ranks;
}

void write_head(const std::vector<TracePart> &parts, const std::vector<int> &ranks,
                const std::map<Host, HostClock> &clocks, const TraceMade &made, Output &output) {
    const TraceHead &first = parts.front().head();
    nlohmann::ordered_json head = {
        {"flx", fmt::format("{}.{}.{}", FLX_VERSION_MAJOR, FLX_VERSION_MINOR, FLX_VERSION_PATCH)},
        {"command", parts.front().command()},
        {"job", parts.front().job()},
        {"ranks", parts.size()},
        {"hosts", clocks.size()},
        {"calls", made.calls},
        {"lost_calls", made.lost},
        {"began_since_1970_s", static_cast<double>(first.made_since_ns) / 1e9},
        {"notes", made.notes},
        {"clocks", nlohmann::ordered_json::array()},
        {"links", nlohmann::ordered_json::array()}};
    for (const auto &[host, clock] : clocks) {
        nlohmann::ordered_json error = clock.error_ns() / 1e3;
        if (clock.error_ns() < 0)
            error = nullptr;
        head["clocks"].push_back({{"host", clock.host()},
                                  {"offset_us", clock.offset_ns() / 1e3},
                                  {"drift_ppm", clock.drift() * 1e6},
                                  {"error_us", error}});
    }
    for (size_t p = 0; p < parts.size(); ++p) {
        std::set<std::string> told;
        for (const Entry &entry : parts[p].entries()) {
            if (kind_of(entry) != EntryKind::link_name || !told.insert(link_name_of(entry)).second)
                continue;
            const auto rate = std::bit_cast<double>(entry.begin.load(std::memory_order_relaxed));
            const auto latency = std::bit_cast<double>(entry.end.load(std::memory_order_relaxed));
            head["links"].push_back({{"rank", ranks[p]},
                                     {"host", clocks.at(host_of(parts[p])).host()},
                                     {"name", link_name_of(entry)},
                                     {"rate_MBps", rate / 1e6},
                                     {"latency_us", latency * 1e6}});
        }
    }
    output.line("{{\"displayTimeUnit\":\"ns\",\"otherData\":{},\"traceEvents\":[\n",
                head.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

Status write_trace(const std::string &file, const std::vector<TracePart> &parts, TraceMade &made) {
    std::unique_ptr<std::FILE, int (*)(std::FILE *)> out(std::fopen(file.c_str(), "wxe"), &std::fclose);
    if (out == nullptr)
        return fail(Fault::not_written, "{} cannot be written: {}", file, std::strerror(errno));
    const std::map<Host, HostClock> clocks = clocks_of(parts);
    const std::vector<int> ranks = ranks_of(parts);
    int64_t began_ns = INT64_MAX;
    size_t killed = 0;
    for (const TracePart &part : parts) {
        began_ns = std::min(began_ns, clocks.at(host_of(part)).common(part.head().made_ns));
        made.lost += part.head().lost.load(std::memory_order_relaxed);
        killed += part.ended() ? 0 : 1;
        for (const Entry &entry : part.entries())
            made.calls += kind_of(entry) == EntryKind::call ? 1 : 0;
    }
    made.ranks = parts.size();
    if (const int size = parts.front().head().world_size; size > 0 && parts.size() < static_cast<size_t>(size))
        made.notes.push_back(
            fmt::format("of {} of {} ranks there is nothing", static_cast<size_t>(size) - parts.size(), size));
    if (killed != 0)
        made.notes.push_back(fmt::format("{} ranks did not end as programs do", killed));
    if (made.lost != 0)
        made.notes.push_back(fmt::format("{} calls are not in it, as there was no room for them", made.lost));
    for (const auto &[host, clock] : clocks)
        if (clock.error_ns() < 0)
            made.notes.push_back(fmt::format("the clock of {} is set by its date alone", clock.host()));
    Output output(out.get());
    write_head(parts, ranks, clocks, made, output);
    for (size_t p = 0; p < parts.size(); ++p)
        PartWriter(parts[p], ranks[p], clocks.at(host_of(parts[p])), began_ns, output).write();
    output.line("{{\"ph\":\"M\",\"name\":\"end\",\"pid\":{}}}\n]}}\n", ranks.front());
    output.flush();
    // Some file systems say only now that there was no room.
    if (output.failed() || std::fflush(out.get()) != 0 || std::fclose(out.release()) != 0)
        return fail(Fault::not_written, "{} cannot be written: {}", file, std::strerror(errno));
    return {};
}

}  // namespace flx::record

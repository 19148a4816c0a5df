#include "apps/flx_report/data/collector.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "apps/traces/process_name.h"
#include "apps/traces/reader.h"

namespace flx::report {

using traces::Argument;
using traces::Event;
using traces::Header;
using traces::ProcessName;
using traces::TraceLink;
using traces::TraceReader;

namespace {

constexpr size_t kMostClasses = 2000;
constexpr size_t kMostLinks = 512;  ///< of hosts, and names of them
constexpr size_t kMostBegun = 1'000'000;
constexpr size_t kMostPairs = 1'000'000;
constexpr size_t kMostGroups = 1'000'000;
constexpr size_t kMostNames = 1000;
constexpr size_t kLongestName = 64;
constexpr std::string_view kMpiPrefix = "MPI";  ///< of names of communicators that are MPI's

bool takes_longer(const NotedCall &a, const NotedCall &b) {
    return a.took_us > b.took_us;
}

uint64_t member_key(int64_t rank, int64_t communicator) {
    return static_cast<uint64_t>(rank) << 32 ^ static_cast<uint64_t>(communicator);
}

uint64_t whole(double number) {
    return number > 0 && number < 1e18 ? static_cast<uint64_t>(number) : 0;
}

/// A number that a foreign file has for one of ours.
int64_t integer(double number) {
    constexpr double kMost = 1e15;
    return static_cast<int64_t>(std::clamp(number, -kMost, kMost));
}

/// Bytes whose sums stay numbers.
double amount(double number) {
    return std::clamp(number, 0.0, 1e18);
}

}  // namespace

uint32_t Names::number_of(std::string_view name) {
    if (const auto found = numbers_.find(name); found != numbers_.end())
        return found->second;
    const bool is_full = names_.size() >= kMost;
    const std::string kept = is_full ? "(other names)" : std::string(name.substr(0, 256));
    const auto [place, is_new] = numbers_.try_emplace(kept, static_cast<uint32_t>(names_.size()));
    if (is_new)
        names_.push_back(kept);
    return place->second;
}

Collector::Collector(Header header, size_t most_arrivals)
    : meetings_(most_arrivals, [this](const Meeting &meeting) { take(meeting); }) {
    for (const TraceLink &link : header.links) {
        hosts_.try_emplace(link.rank, link.host);
        HostLink &of_host = *host_link(link.host, link.name);
        // Ranks of a host share its rails, and measured them alike.
        if (link.rate_MBps > of_host.rate_MBps) {
            of_host.rate_MBps = link.rate_MBps;
            of_host.latency_us = link.latency_us;
        }
    }
    summary_.header = std::move(header);
}

std::optional<int32_t> Collector::rank_of(int64_t rank, std::string &problem) {
    const auto [place, is_new] = ranks_.try_emplace(rank, static_cast<int32_t>(summary_.ranks.size()));
    if (!is_new)
        return place->second;
    if (rank < 0 || summary_.ranks.size() >= kMostRanks) {
        ranks_.erase(place);
        problem = rank < 0 ? fmt::format("its \"pid\" is no rank") : fmt::format("more than {} ranks", kMostRanks);
        return std::nullopt;
    }
    RankSummary &added = summary_.ranks.emplace_back();
    added.rank = rank;
    if (const auto host = hosts_.find(rank); host != hosts_.end())
        added.host = host->second;
    return place->second;
}

void Collector::name_rank(const Event &event, RankSummary &rank) {
    ProcessName name = traces::process_name_of(event.text("name"));
    if (rank.host.empty())
        rank.host = std::move(name.host);
    if (name.pid != 0)
        rank.pid = name.pid;
}

void Collector::introduce(const Event &event) {
    if (event.phase != 'M')
        return;
    if (event.name == "process_name") {
        std::string ignored;
        if (const auto rank = rank_of(event.pid, ignored))
            name_rank(event, summary_.ranks[static_cast<size_t>(*rank)]);
    } else if (event.name == "thread_name") {
        // Rows of links have names as well.
        const std::string_view name = event.text("name");
        if (name.starts_with(kMpiPrefix) && summary_.communicator_names.size() < kMostNames)
            summary_.communicator_names.try_emplace(event.tid, name.substr(0, kLongestName));
    } else if (event.name == "communicator" && groups_.size() < kMostGroups) {
        const auto id = integer(event.number("communicator", static_cast<double>(event.tid)));
        const auto [place, is_new] = group_by_uid_.try_emplace(
            fmt::format("{}:{}", id, event.text("first_uid").substr(0, 64)), static_cast<uint32_t>(groups_.size()));
        if (is_new)
            groups_.push_back({id, static_cast<size_t>(whole(event.number("size", 0))), {}});
        groups_[place->second].members[integer(event.number("rank", -1))] = event.pid;
        group_by_member_[member_key(event.pid, id)] = place->second;
    }
}

uint32_t Collector::group_of(int64_t rank, int64_t communicator) {
    if (const auto found = group_by_member_.find(member_key(rank, communicator)); found != group_by_member_.end())
        return found->second;
    // Nothing says who is in it: ranks that call it by one number are taken to be.
    const auto [place, is_new] =
        group_by_uid_.try_emplace(fmt::format("{}", communicator), static_cast<uint32_t>(groups_.size()));
    if (is_new)
        groups_.push_back({communicator, 0, {}});
    group_by_member_[member_key(rank, communicator)] = place->second;
    return place->second;
}

/// Calls on GPU memory have numbers of their own.
uint32_t Collector::group_on_gpus(uint32_t group) {
    const auto [place, is_new] = gpu_groups_.try_emplace(group, static_cast<uint32_t>(groups_.size()));
    if (is_new)
        groups_.push_back(Group(groups_[group]));
    return place->second;
}

size_t Collector::class_of(const Event &event, bool non_blocking) {
    const Argument *bytes = event.find("bytes");
    const int size = bytes == nullptr || bytes->is_text ? -1 : size_class(bytes->number);
    const uint64_t name = names_.number_of(event.name);
    const uint64_t way = names_.number_of(event.text("way"));
    const uint64_t key = name << 32 | way << 16 | static_cast<uint64_t>(size + 1) << 1 | (non_blocking ? 1U : 0U);
    if (const auto found = classes_.find(key); found != classes_.end())
        return found->second;
    if (classes_.size() >= kMostClasses)  // the last one takes the rest
        return summary_.classes.size() - 1;
    CallClass &added = summary_.classes.emplace_back();
    if (classes_.size() + 1 == kMostClasses) {
        added.name = "(other calls)";
    } else {
        added.name = names_.name_of(static_cast<uint32_t>(name));
        added.way = names_.name_of(static_cast<uint32_t>(way));
        added.size = size;
        added.non_blocking = non_blocking;
    }
    classes_[key] = summary_.classes.size() - 1;
    return summary_.classes.size() - 1;
}

void Collector::note_time(double from_us, double to_us) {
    summary_.from_us = has_time_ ? std::min(summary_.from_us, from_us) : from_us;
    summary_.to_us = has_time_ ? std::max(summary_.to_us, to_us) : to_us;
    has_time_ = true;
}

void Collector::note_slow(NotedCall call) {
    std::vector<NotedCall> &heap = summary_.slowest;
    if (heap.size() == kNoted) {
        if (!takes_longer(call, heap.front()))
            return;
        std::pop_heap(heap.begin(), heap.end(), takes_longer);
        heap.pop_back();
    }
    heap.push_back(std::move(call));
    std::push_heap(heap.begin(), heap.end(), takes_longer);
}

Collector::Begun Collector::begun(const Event &event, int32_t rank, bool non_blocking) {
    const auto communicator = integer(event.number("communicator", static_cast<double>(event.tid)));
    const bool on_gpus = event.find("gpu_call") != nullptr;
    const uint32_t group = group_of(event.pid, communicator);
    return {class_of(event, non_blocking),
            event.at_us,
            amount(event.number("bytes", 0)),
            on_gpus ? group_on_gpus(group) : group,
            communicator,
            whole(event.number(on_gpus ? "gpu_call" : "number", 0)),
            rank,
            event.number("unfinished", 0) != 0,
            std::string(event.text("error"))};
}

NotedCall Collector::noted(const Begun &call, double took_us, int64_t rank) {
    NotedCall result;
    result.call_class = call.call_class;
    result.at_us = call.at_us;
    result.took_us = took_us;
    result.bytes = call.bytes;
    result.communicator = call.communicator;
    result.number = call.number;
    result.rank = rank;
    result.error = call.error;
    return result;
}

void Collector::count(const Begun &call, double took_us) {
    CallClass &of = summary_.classes[call.call_class];
    RankSummary &rank = summary_.ranks[static_cast<size_t>(call.rank)];
    ++of.calls;
    of.bytes += call.bytes;
    of.took.add(took_us);
    ++rank.calls;
    rank.bytes += call.bytes;
    if (!of.non_blocking) {
        rank.in_calls_us += took_us;
        summary_.in_calls.add(call.at_us, took_us, took_us);
    }
    if (!call.error.empty()) {
        ++of.errors;
        if (++summary_.failed_count <= kNoted)
            summary_.failed.push_back(noted(call, took_us, rank.rank));
    }
    if (call.unfinished) {
        ++of.unfinished;
        if (++summary_.unfinished_count <= kNoted)
            summary_.unfinished.push_back(noted(call, took_us, rank.rank));
    }
    const Group &group = groups_[call.group];
    if (call.number == 0 || group.size == 1)
        note_slow(noted(call, took_us, rank.rank));
    else
        meetings_.add(call.group, call.number, group.size, call.call_class, call.bytes,
                      {call.rank, call.at_us, call.at_us + took_us});
}

void Collector::take(const Meeting &meeting) {
    const Imbalance found = imbalance_of(meeting);
    CallClass &of = summary_.classes[meeting.call_class];
    ++summary_.matched;
    of.spread.add(found.spread_us);
    of.after.add(found.after_us);
    RankSummary &last = summary_.ranks[static_cast<size_t>(found.last_rank)];
    NotedCall slow;
    slow.call_class = meeting.call_class;
    slow.at_us = found.first_us;
    slow.took_us = found.longest_us;
    slow.bytes = meeting.bytes;
    slow.communicator = groups_[meeting.communicator].id;
    slow.number = meeting.number;
    slow.matched = true;
    slow.last_rank = last.rank;
    slow.spread_us = found.spread_us;
    slow.after_us = found.after_us;
    note_slow(std::move(slow));
    if (of.non_blocking)  // nobody is in the call while it is under way
        return;
    of.early_us += found.early_us;
    ++last.last;
    last.kept_waiting_us += found.early_us;
    for (const Arrival &arrival : meeting.arrivals) {
        RankSummary &rank = summary_.ranks[static_cast<size_t>(arrival.rank)];
        ++rank.matched;
        const double early = early_us(arrival, found.first_us + found.spread_us);
        if (!(early > 0) || arrival.rank == found.last_rank)
            continue;
        rank.early_us += early;
        summary_.early.add(arrival.entered_us, early, early);
        const std::pair key(rank.rank, last.rank);
        if (summary_.pairs.size() < kMostPairs || summary_.pairs.count(key) != 0) {
            WaitPair &pair = summary_.pairs[key];
            pair.early_us += early;
            ++pair.calls;
        }
    }
}

void Collector::begin(const Event &event, int32_t rank) {
    if (begun_.size() < kMostBegun)
        begun_[fmt::format("{} {}", event.pid, event.id)] = begun(event, rank, true);
}

void Collector::end(const Event &event) {
    const auto found = begun_.find(fmt::format("{} {}", event.pid, event.id));
    if (found == begun_.end())
        return;
    Begun &call = found->second;
    if (call.error.empty())
        call.error = event.text("error");
    count(call, std::max(0.0, event.at_us - call.at_us));
    begun_.erase(found);
}

void Collector::wait(const Event &event, int32_t rank) {
    RankSummary &of = summary_.ranks[static_cast<size_t>(rank)];
    of.waited_us += event.for_us;
    // Ranks of a communicator have numbers of their own there, and the page speaks of those of the program.
    auto peer = integer(event.number("peer", -1));
    const auto group = group_by_member_.find(member_key(event.pid, event.tid));
    if (group != group_by_member_.end()) {
        const auto &members = groups_[group->second].members;
        if (const auto member = members.find(peer); member != members.end())
            peer = member->second;
    }
    const std::pair key(of.rank, std::max<int64_t>(peer, -1));
    if (summary_.pairs.size() < kMostPairs || summary_.pairs.count(key) != 0)
        summary_.pairs[key].waited_us += event.for_us;
}

HostLink *Collector::host_link(const std::string &host, const std::string &name) {
    const std::pair key(host.substr(0, 256), name.substr(0, 256));
    const auto found = summary_.links.find(key);
    if (found != summary_.links.end())
        return &found->second;
    if (summary_.links.size() >= kMostLinks)
        return &summary_.links[{"", "(other links)"}];
    return &summary_.links[key];
}

void Collector::link(const Event &event, int32_t rank) {
    const double bytes = amount(event.number("bytes", 0));
    HostLink &link = *host_link(summary_.ranks[static_cast<size_t>(rank)].host, std::string(event.text("link")));
    link.bytes += bytes;
    link.carried.add(event.at_us, event.for_us, bytes);
}

void Collector::link_event(const Event &event, int32_t rank) {
    constexpr std::string_view kCarries = " carries ";
    if (++summary_.link_event_count > 10 * kNoted)
        return;
    LinkEvent &added = summary_.link_events.emplace_back();
    added.at_us = event.at_us;
    added.rank = summary_.ranks[static_cast<size_t>(rank)].rank;
    added.text = event.name.substr(0, 512);
    const size_t carries = added.text.rfind(kCarries);
    if (carries == std::string::npos)
        return;
    const std::string_view what = std::string_view(added.text).substr(carries + kCarries.size());
    added.kind = what == "nothing" ? LinkEvent::Kind::lost
                 : what == "again" ? LinkEvent::Kind::returned
                                   : LinkEvent::Kind::other;
    if (added.kind != LinkEvent::Kind::other)
        added.link = added.text.substr(0, carries);
}

bool Collector::add(const Event &event, std::string &problem) {
    ++summary_.events;
    const bool is_call = event.phase == 'X' && (event.category == "call" || event.category == "gpu");
    const bool is_link = event.category == "link" && (event.phase == 'X' || event.phase == 'i');
    const bool is_wait = event.phase == 'X' && event.category == "wait";
    const bool is_other_call = event.category == "nonblocking" && (event.phase == 'b' || event.phase == 'e');
    const bool is_share = event.phase == 'C' && (event.name == "shares" || event.name.starts_with("shares of "));
    if (!is_call && !is_link && !is_wait && !is_other_call && !is_share)
        return true;
    const std::optional<int32_t> rank = rank_of(event.pid, problem);
    if (!rank)
        return false;
    note_time(event.at_us, event.at_us + event.for_us);
    if (is_call) {
        count(begun(event, *rank, false), event.for_us);
    } else if (is_wait) {
        wait(event, *rank);
    } else if (is_other_call) {
        if (event.phase == 'b')
            begin(event, *rank);
        else
            end(event);
    } else if (is_link) {
        if (event.phase == 'X')
            link(event, *rank);
        else
            link_event(event, *rank);
    } else {
        for (size_t i = 0; i < event.argument_count; ++i) {
            const Argument &share = event.arguments[i];
            const bool is_known = summary_.shares.count(share.name) != 0;
            if (!share.is_text && (is_known || summary_.shares.size() < kMostLinks))
                summary_.shares[share.name].add(event.at_us, std::clamp(share.number, 0.0, 1.0));
        }
    }
    return true;
}

Summary Collector::finish(bool truncated) {
    for (auto &[id, call] : begun_) {
        call.unfinished = true;
        count(call, std::max(0.0, summary_.to_us - call.at_us));
    }
    begun_.clear();
    meetings_.finish([this](const Meeting &meeting) {
        ++summary_.unmatched;
        for (const Arrival &arrival : meeting.arrivals) {
            NotedCall call;
            call.call_class = meeting.call_class;
            call.at_us = arrival.entered_us;
            call.took_us = arrival.left_us - arrival.entered_us;
            call.bytes = meeting.bytes;
            call.communicator = groups_[meeting.communicator].id;
            call.number = meeting.number;
            call.rank = summary_.ranks[static_cast<size_t>(arrival.rank)].rank;
            note_slow(std::move(call));
        }
    });
    summary_.truncated = truncated;
    summary_.stride = meetings_.stride();
    summary_.communicators = groups_.size() - gpu_groups_.size();
    // Not a heap any more, but sorted.
    std::sort_heap(summary_.slowest.begin(), summary_.slowest.end(), takes_longer);
    std::sort(summary_.ranks.begin(), summary_.ranks.end(),
              [](const RankSummary &a, const RankSummary &b) { return a.rank < b.rank; });
    for (auto &[name, link] : summary_.links) {
        Series wide = link.carried;
        wide.widen_to(HostLink::kPeakStep);
        link.highest_MBps = wide.highest_per_us();
    }
    std::stable_sort(summary_.link_events.begin(), summary_.link_events.end(),
                     [](const LinkEvent &a, const LinkEvent &b) { return a.at_us < b.at_us; });
    return std::move(summary_);
}

std::optional<Summary> summarise(std::istream &stream, const std::string &name, std::string &problem) {
    TraceReader reader(stream, name);
    Header header;
    if (!reader.begin(header)) {
        problem = reader.problem();
        return std::nullopt;
    }
    Collector collector(std::move(header));
    // What is said of ranks and communicators holds for all events, wherever it stands.
    while (const Event *event = reader.next("\"ph\":\"M\""))
        collector.introduce(*event);
    if (reader.problem().empty()) {
        reader.rewind();
        std::string why;
        while (const Event *event = reader.next())
            if (!collector.add(*event, why)) {
                problem = reader.refused(why);
                return std::nullopt;
            }
    }
    problem = reader.problem();
    if (!problem.empty())
        return std::nullopt;
    return collector.finish(reader.truncated());
}

}  // namespace flx::report

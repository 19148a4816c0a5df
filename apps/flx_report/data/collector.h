/// \file collector.h
/// Makes the summary of a trace, event by event.
#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "apps/flx_report/data/meetings.h"
#include "apps/flx_report/data/summary.h"
#include "apps/traces/event.h"

namespace flx::report {

/// Reads a whole trace; the stream can be rewound. On an error it is empty, and `problem` is a sentence with `name` and
/// the line.
[[nodiscard]] std::optional<Summary> summarise(std::istream &stream, const std::string &name, std::string &problem);

/// What is kept of names that programs choose is bounded; those that come later are all one.
class Names {
  public:
    static constexpr size_t kMost = 1000;

    uint32_t number_of(std::string_view name);
    [[nodiscard]] const std::string &name_of(uint32_t number) const { return names_[number]; }

  private:
    struct Hash {
        using is_transparent = void;  // NOLINT(readability-identifier-naming): the standard library's word
        size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
    };
    std::unordered_map<std::string, uint32_t, Hash, std::equal_to<>> numbers_;
    std::vector<std::string> names_;
};

class Collector {
  public:
    static constexpr size_t kMostRanks = 65536;
    static constexpr size_t kNoted = 20;  ///< calls of each list, and link events ten times as many

    explicit Collector(traces::Header header, size_t most_arrivals = 2'000'000);

    /// Of an event that says which ranks are one communicator: before all others.
    void introduce(const traces::Event &event);
    /// False: `problem` says why it cannot be taken.
    bool add(const traces::Event &event, std::string &problem);
    [[nodiscard]] Summary finish(bool truncated);

  private:
    /// One communicator, of all its ranks.
    struct Group {
        int64_t id = 0;
        size_t size = 0;                               ///< 0: not known
        std::unordered_map<int64_t, int64_t> members;  ///< rank there -> rank in the world
    };
    /// A call that does not block and has not ended.
    struct Begun {
        size_t call_class;
        double at_us;
        double bytes;
        uint32_t group;
        int64_t communicator;
        uint64_t number;
        int32_t rank;
        bool unfinished;
        std::string error;
    };

    std::optional<int32_t> rank_of(int64_t rank, std::string &problem);
    void name_rank(const traces::Event &event, RankSummary &rank);
    uint32_t group_of(int64_t rank, int64_t communicator);
    uint32_t group_on_gpus(uint32_t group);
    size_t class_of(const traces::Event &event, bool non_blocking);
    void note_time(double from_us, double to_us);
    /// What is common to calls that block and those that do not; `took_us` is known at their end.
    void count(const Begun &call, double took_us);
    void begin(const traces::Event &event, int32_t rank);
    void end(const traces::Event &event);
    void wait(const traces::Event &event, int32_t rank);
    void link(const traces::Event &event, int32_t rank);
    void link_event(const traces::Event &event, int32_t rank);
    void take(const Meeting &meeting);
    void note_slow(NotedCall call);
    [[nodiscard]] Begun begun(const traces::Event &event, int32_t rank, bool non_blocking);
    [[nodiscard]] static NotedCall noted(const Begun &call, double took_us, int64_t rank);
    HostLink *host_link(const std::string &host, const std::string &name);

    Summary summary_;
    Names names_;
    std::unordered_map<uint64_t, size_t> classes_;
    std::unordered_map<int64_t, int32_t> ranks_;
    std::unordered_map<int64_t, std::string> hosts_;  ///< of ranks, as the header has them
    std::vector<Group> groups_;
    std::unordered_map<std::string, uint32_t> group_by_uid_;
    std::unordered_map<uint64_t, uint32_t> group_by_member_;
    std::unordered_map<uint32_t, uint32_t> gpu_groups_;  ///< of a communicator's calls on GPU memory
    std::unordered_map<std::string, Begun> begun_;
    Meetings meetings_;
    bool has_time_ = false;
};

}  // namespace flx::report

/// \file event.h
/// What a trace consists of: what it says at its beginning, and one event a line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flx::traces {

/// A link as a rank has it, with what was measured when the communicator was made.
struct TraceLink {
    int64_t rank = 0;
    std::string host;
    std::string name;
    double rate_MBps = 0;  ///< 0: not measured
    double latency_us = 0;
};

/// How a host's clock was set beside the first host's.
struct TraceClock {
    std::string host;
    double offset_us = 0;
    double drift_ppm = 0;
    double error_us = -1;  ///< times of two hosts can be compared no better; less than 0: it is not known
};

/// `otherData` of the trace.
struct Header {
    std::string flx;
    std::string command;
    std::string job;
    std::string began;               ///< `2026-11-26T04:30:00Z`
    double began_s = 0;              ///< the same, since 1970; 0: not known
    std::vector<std::string> notes;  ///< what whoever wrote the trace has to say of it
    int64_t ranks = 0;
    int64_t hosts = 0;
    uint64_t calls = 0;
    uint64_t lost_calls = 0;  ///< for which there was no room
    std::vector<TraceClock> clocks;
    std::vector<TraceLink> links;
};

/// A member of `args`.
struct Argument {
    std::string name;
    bool is_text = false;
    double number = 0;  ///< of true: 1
    std::string text;
};

/// One event. It is read into again and again, so its texts keep their memory.
struct Event {
    char phase = 0;
    std::string category;
    std::string name;
    std::string id;
    int64_t pid = -1;
    int64_t tid = -1;
    double at_us = 0;
    double for_us = 0;
    std::vector<Argument> arguments;
    size_t argument_count = 0;  ///< of `arguments`; those behind are left from earlier events

    /// Null if there is none.
    [[nodiscard]] const Argument *find(std::string_view argument) const {
        for (size_t i = 0; i < argument_count; ++i)
            if (arguments[i].name == argument)
                return &arguments[i];
        return nullptr;
    }
    [[nodiscard]] double number(std::string_view argument, double otherwise) const {
        const Argument *found = find(argument);
        return found == nullptr || found->is_text ? otherwise : found->number;
    }
    /// Empty if there is none.
    [[nodiscard]] std::string_view text(std::string_view argument) const {
        const Argument *found = find(argument);
        return found == nullptr || !found->is_text ? std::string_view{} : std::string_view(found->text);
    }
};

}  // namespace flx::traces

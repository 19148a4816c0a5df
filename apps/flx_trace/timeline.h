/// \file timeline.h
/// The calls of one rank as stacks of functions, one inside the other, which is what tools know of a thread. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flx::trace {

struct Span {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    int64_t row = 0;       ///< the communicator
    bool is_part = false;  ///< of a call, such as a wait: it ends with the call at the latest
    size_t index = 0;      ///< the caller's
};

/// A span is entered or left.
struct Turn {
    int64_t at_ns = 0;
    size_t index = 0;  ///< of the span
    bool leaves = false;
};

/// The turns of each stack, by time. There is more than one where calls on several communicators overlap, as several
/// threads made them.
[[nodiscard]] std::vector<std::vector<Turn>> stacks_of(std::vector<Span> spans);

}  // namespace flx::trace

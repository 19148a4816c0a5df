#include "apps/flx_trace/timeline.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace flx::trace {
namespace {

class Stack {
  public:
    void leave_until(int64_t at_ns) {
        while (!open_.empty() && open_.back().end_ns <= at_ns)
            leave(open_.back().end_ns);
    }
    /// The innermost call; null: none is open.
    [[nodiscard]] const Span *call() const {
        const auto found = std::find_if(open_.rbegin(), open_.rend(), [](const Span &span) { return !span.is_part; });
        return found == open_.rend() ? nullptr : &*found;
    }
    [[nodiscard]] bool takes(const Span &span) const {
        const Span *outer = call();
        return outer == nullptr || (outer->row == span.row && span.end_ns <= outer->end_ns);
    }
    void enter(Span span) {
        // What is a part was noted by another clock of the kernel, which may differ by some nanoseconds.
        if (span.is_part && !open_.empty())
            span.end_ns = std::min(span.end_ns, open_.back().end_ns);
        while (!open_.empty() && open_.back().end_ns < span.end_ns)
            leave(span.begin_ns);
        turns_.push_back({span.begin_ns, span.index, false});
        open_.push_back(span);
    }
    std::vector<Turn> finish() {
        leave_until(INT64_MAX);
        return std::move(turns_);
    }

  private:
    void leave(int64_t at_ns) {
        turns_.push_back({at_ns, open_.back().index, true});
        open_.pop_back();
    }

    std::vector<Span> open_;
    std::vector<Turn> turns_;
};

}  // namespace

std::vector<std::vector<Turn>> stacks_of(std::vector<Span> spans) {
    std::stable_sort(spans.begin(), spans.end(), [](const Span &a, const Span &b) {
        return std::tuple(a.begin_ns, a.is_part, -a.end_ns) < std::tuple(b.begin_ns, b.is_part, -b.end_ns);
    });
    std::vector<Stack> stacks(1);
    for (const Span &span : spans) {
        for (Stack &stack : stacks)
            stack.leave_until(span.begin_ns);
        auto place = std::find_if(stacks.begin(), stacks.end(), [&](const Stack &stack) {
            const Span *outer = stack.call();
            return span.is_part ? outer != nullptr && outer->row == span.row : stack.takes(span);
        });
        if (place == stacks.end() && span.is_part)
            place = stacks.begin();
        if (place == stacks.end())
            place = stacks.emplace(stacks.end());
        place->enter(span);
    }
    std::vector<std::vector<Turn>> turns;
    for (Stack &stack : stacks)
        turns.push_back(stack.finish());
    return turns;
}

}  // namespace flx::trace

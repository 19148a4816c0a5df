#include "runtime/front/mpi/habits.h"

#include <algorithm>
#include <bit>

namespace flx::preload {
namespace {

constexpr size_t kHost = 0;
constexpr size_t kGpu = 1;

void add(Habits::Seen &seen, Memory memory) {
    if (memory == Memory::host || memory == Memory::both)
        seen[kHost] = 1;
    if (memory == Memory::gpu || memory == Memory::both)
        seen[kGpu] = 1;
}

}  // namespace

/// 0, 4, 16, 64, 256, and every 1024th.
bool Habits::is_milestone(uint64_t calls) {
    constexpr uint64_t kSeldom = 1024;
    if (calls >= kSeldom)
        return calls % kSeldom == 0;
    return calls == 0 || (calls > 1 && std::has_single_bit(calls) && std::countr_zero(calls) % 2 == 0);
}

bool Habits::is_time_to_agree(CallClass which) const {
    const auto found = courses_.find(which.index());
    return found == courses_.end() ||
           (is_milestone(found->second.calls) && found->second.agreed != found->second.calls);
}

Habits::Seen Habits::seen(CallClass which, Memory now) const {
    const auto found = courses_.find(which.index());
    Seen seen = found == courses_.end() ? Seen{} : found->second.seen;
    add(seen, now);
    return seen;
}

void Habits::agree(CallClass which, const Seen &any) {
    Course &course = courses_[which.index()];
    course.agreed = course.calls;
    course.seen = {};
    if (any[kHost] != 0 || any[kGpu] != 0)
        course.on_gpus = any[kHost] == 0;
}

void Habits::carried_out(CallClass which, Memory memory) {
    Course &course = courses_[which.index()];
    if (course.agreed != course.calls)
        add(course.seen, memory);
    ++course.calls;
}

bool Habits::on_gpus(CallClass which) const {
    if (const auto found = courses_.find(which.index()); found != courses_.end())
        return found->second.on_gpus;
    const auto on_gpus =
        std::count_if(courses_.begin(), courses_.end(), [](const auto &c) { return c.second.on_gpus; });
    return 2 * static_cast<size_t>(on_gpus) > courses_.size();
}

}  // namespace flx::preload

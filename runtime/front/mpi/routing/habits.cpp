#include "runtime/front/mpi/routing/habits.h"

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
    const Course &course = this->course(which);
    return course.agreed != course.calls && is_milestone(course.calls);
}

Habits::Seen Habits::seen(CallClass which, Memory now) const {
    Seen seen = course(which).seen;
    add(seen, now);
    return seen;
}

Habits::Course &Habits::course_of(CallClass which) {
    uint16_t &place = place_[which.index()];
    if (place == 0) {
        place = static_cast<uint16_t>(courses_.size());
        courses_.emplace_back();
    }
    return courses_[place];
}

void Habits::agree(CallClass which, const Seen &any) {
    Course &course = course_of(which);
    course.agreed = course.calls;
    course.seen = {};
    if (any[kHost] != 0 || any[kGpu] != 0)
        course.on_gpus = any[kHost] == 0;
}

void Habits::carried_out(CallClass which, Memory memory) {
    Course &course = course_of(which);
    if (course.agreed != course.calls)
        add(course.seen, memory);
    ++course.calls;
}

bool Habits::on_gpus(CallClass which) const {
    if (place_[which.index()] != 0)
        return course(which).on_gpus;
    const auto on_gpus =
        std::count_if(courses_.begin(), courses_.end(), [](const Course &each) { return each.on_gpus; });
    return 2 * static_cast<size_t>(on_gpus) > courses_.size() - 1;
}

}  // namespace flx::preload

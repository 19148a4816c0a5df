/// \file habits.h
/// Whether the calls of a class have their data on GPUs, as the ranks of a communicator agreed. Plain logic: no
/// communication.
///
/// A rank knows of its own data alone, and another's may be elsewhere. So a call goes by what was agreed before, and
/// whoever's data are elsewhere copies them: that costs time, and harms nothing. The ranks agree when a class occurs
/// for the first time, which counts that call, and then ever more seldom.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/front/mpi/arguments/mirrors.h"
#include "runtime/front/mpi/routing/routes.h"

namespace flx::preload {

/// The habits of one communicator's blocking calls. Used by one thread at a time.
class Habits {
  public:
    /// Whether ranks are to agree before the next call of `which`. All of them ask before the same call: those that a
    /// rank began and took no part in do not count.
    [[nodiscard]] bool is_time_to_agree(CallClass which) const;
    /// What this rank has had of each kind since they last did, the call to come included: not 0 where there was some.
    using Seen = std::array<int64_t, 2>;
    [[nodiscard]] Seen seen(CallClass which, Memory now) const;
    /// `any` is what any rank has seen, by kind.
    void agree(CallClass which, const Seen &any);
    /// A call was carried out, on whichever way.
    void carried_out(CallClass which, Memory memory);

    /// Whether all data of such calls are taken to be on GPUs. Of a class that has not occurred, what most do.
    [[nodiscard]] bool on_gpus(CallClass which) const;

  private:
    struct Course {
        uint64_t calls = 0;
        uint64_t agreed = ~uint64_t{0};  ///< `calls` when the ranks last did
        Seen seen{};
        bool on_gpus = false;
    };
    static bool is_milestone(uint64_t calls);

    [[nodiscard]] const Course &course(CallClass which) const { return courses_[place_[which.index()]]; }
    Course &course_of(CallClass which);

    /// Few classes occur: where each one's course is, and the courses. The first one is for those that did not occur.
    std::array<uint16_t, CallClass::kHostCount> place_{};
    std::vector<Course> courses_{1};
};

}  // namespace flx::preload

/// \file routes.h
/// Whether FLX or MPI carries out a call, by what both took for such calls in this program. Plain logic: no
/// communication, so that it can be tested with times that are made up.
///
/// A communicator's calls begin with MPI, and their times are added up. Once what FLX would probably have saved is as
/// much as its own communicator costs, that is made. From then on some calls of each class go to each, and the faster
/// one gets the class. It is tried again later, as seldom as the loss by the slower one demands.
///
/// All ranks must decide alike. What is decided depends on the order of calls, which is one on all ranks of a
/// communicator, and on numbers that they agreed on.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/front/mpi/routing/collectives.h"

namespace flx::preload {

/// Bytes of a call that not all ranks know alike: the roots' arrays of gatherv and scatterv, alltoallv, alltoallw.
inline constexpr size_t kBytesUnknown = ~size_t{0};

/// Calls of one collective whose bytes differ by less than a factor of four, with data in host memory or on GPUs.
class CallClass {
  public:
    static constexpr size_t kSizes = 24;  ///< the last one: bytes that not all ranks know
    static constexpr size_t kHostCount = kCollectives.size() * kSizes;
    static constexpr size_t kCount = 2 * kHostCount;

    /// `bytes` must be what all ranks of the call name alike, or kBytesUnknown.
    CallClass(Collective collective, size_t bytes)
        : index_(static_cast<size_t>(collective) * kSizes + size_index(bytes)) {}
    explicit CallClass(size_t index) : index_(index) {}
    /// The same on GPUs.
    [[nodiscard]] CallClass on_gpus() const { return CallClass(index_ % kHostCount + kHostCount); }

    [[nodiscard]] size_t index() const { return index_; }
    /// `allreduce 4096`: from so many bytes up to four times as many; `gatherv any`; `bcast 64 gpu`.
    [[nodiscard]] std::string name() const;
    /// The class of that name; false if there is none.
    static bool from_name(std::string_view name, CallClass &which);

  private:
    static size_t size_index(size_t bytes) {
        if (bytes == kBytesUnknown)
            return kSizes - 1;
        const size_t index = (static_cast<size_t>(std::bit_width(bytes)) + 1) / 2;
        return index < kSizes - 1 ? index : kSizes - 2;
    }

    size_t index_;
};

/// Seconds that a call took each way; 0: not measured.
struct Times {
    double mpi = 0;
    double flx = 0;
    [[nodiscard]] bool known() const { return mpi > 0 && flx > 0; }
};
/// By class; empty: nothing is known.
using Experience = std::vector<Times>;

/// What is asked at a trial's end.
struct Evidence {
    /// Of the calls of trials, which went by turns: what else the program did was the same for both ways.
    Times by_turns;
    /// Of many more calls, among which are a network's rare long ones, but of different times of the program.
    Times remembered;
};

enum class Route : uint8_t { mpi, flx };

/// The routes of one communicator's blocking calls. Used by one thread at a time.
class Routes {
  public:
    /// Seconds that this rank spent in MPI's calls before FLX had a communicator. Where that is less than
    /// kWorthIntroducingS on some rank, the ranks need not even ask each other what they know.
    [[nodiscard]] double waited() const;
    static constexpr double kWorthIntroducingS = 10e-3;
    /// What the ranks agreed on when they began to think of FLX: times of earlier runs or other communicators, seconds
    /// that making FLX's communicator takes, and what FLX would have saved earlier runs that were over too soon.
    void introduce(Experience experience, double price_s, double unpaid_s);
    [[nodiscard]] bool introduced() const { return introduced_; }

    /// Before FLX has a communicator: whether the ranks are to agree, before the next call, on whether to make one.
    [[nodiscard]] bool is_time_to_ask() const { return !ready_ && calls_ == next_question_; }
    /// Seconds that FLX would have saved this rank so far, and earlier runs, to be compared with price().
    [[nodiscard]] double saving() const;
    [[nodiscard]] double price() const { return price_s_; }
    /// Of it, what it would have saved this run.
    [[nodiscard]] double unpaid() const { return saving() - unpaid_s_; }
    /// The ranks agreed that it does not pay yet: of what is `wanted`, `reached` was. Sets when they are to ask again.
    void wait_longer(double reached, double wanted);
    /// FLX has a communicator, which took so many seconds to make.
    void begin(double took_s);
    [[nodiscard]] bool ready() const { return ready_; }

    /// Whether the ranks are to agree, before the next call of `which`, on who is faster: all get the mean of what each
    /// of them measured() and hand it to settle().
    [[nodiscard]] bool is_trial_over(CallClass which) const { return ready_ && course(which).turn == kTurns; }
    /// The means of this rank's calls each way. They include what the rank waited for late ones. Neither the middle
    /// would do, as a network's few long calls make most of its time, nor what the last one to come took, as MPI lets
    /// it go while its data are under way.
    [[nodiscard]] Evidence measured(CallClass which) const;
    /// `agreement_s`: what such an agreement takes. False: nothing was decided, and times() are what they were.
    bool settle(CallClass which, const Evidence &mean, double agreement_s);
    /// Before there was one.
    static constexpr double kAgreementS = 100e-6;

    /// Where the next call of `which` goes, and whether its time is wanted.
    [[nodiscard]] Route route(CallClass which) const;
    [[nodiscard]] bool wants_time(CallClass which) const;
    /// Whether that is not because the way was found to be the faster one.
    [[nodiscard]] bool is_trying(CallClass which) const { return course(which).turn != kIdle || !times(which).known(); }
    /// The call was carried out that way; `seconds`: if its time was wanted.
    void carried_out(CallClass which, Route route, double seconds);
    /// Where a call goes that cannot be timed, as it does not block: FLX only where it was faster in others.
    [[nodiscard]] Route settled(CallClass which) const { return ready_ ? course(which).settled : Route::mpi; }

    /// What is known by now. Not measured: 0.
    [[nodiscard]] Times times(CallClass which) const {
        return experience_.empty() ? Times{} : experience_[which.index()];
    }
    /// Seconds by which calls of `which` were shorter than they would have been with MPI, and calls that went to FLX.
    [[nodiscard]] double saved(CallClass which) const;
    [[nodiscard]] uint64_t calls_by_flx(CallClass which) const { return course(which).by_flx; }
    [[nodiscard]] uint64_t calls_by_mpi(CallClass which) const { return course(which).by_mpi; }
    [[nodiscard]] double took() const { return took_s_; }

  private:
    /// A trial's calls: some by the other way, as many as before, and so on. The first ones of these do not count: they
    /// may have to prepare something, and data that went the other way may still be under way.
    static constexpr uint8_t kTurns = 32;
    static constexpr uint8_t kInARow = 8;
    static constexpr uint8_t kIdle = 255;
    /// MPI's calls of a class before FLX is tried, enough for some of the long ones of a network.
    static constexpr uint64_t kFirstRun = 48;

    /// The mean of calls, of late ones more than of those long ago.
    struct Mean {
        double seconds = 0;
        uint32_t calls = 0;
        void add(double sample);
    };

    /// What becomes of one class.
    struct Course {
        Route settled = Route::mpi;
        uint8_t turn = kIdle;             ///< of a trial: 0 to kTurns; kIdle between trials
        uint8_t trials = 0;               ///< that have ended with a decision
        uint8_t undecided = 0;            ///< since then
        uint64_t until_next = kFirstRun;  ///< calls between trials that are left
        uint64_t by_flx = 0;
        uint64_t by_mpi = 0;
        uint64_t counted = 0;  ///< of `by_flx`, those in `saved_s`
        double saved_s = 0;
        double waiting_s = 0;  ///< with MPI, before FLX has a communicator
        Mean mpi;
        Mean flx;
        Mean mpi_by_turns;  ///< of trials since the last decision
        Mean flx_by_turns;
    };

    /// When a class is tried again for which trials cost so much and calls take so much.
    static uint64_t calls_between_trials(const Course &course, double trial_s, double call_s);

    /// That of `which`; one that has not begun if there was no such call.
    [[nodiscard]] const Course &course(CallClass which) const { return courses_[place_[which.index()]]; }
    Course &course_of(CallClass which);

    /// Few classes occur: where each one's course is, and the courses. The first one is for those that did not occur.
    std::array<uint16_t, CallClass::kCount> place_{};
    std::vector<Course> courses_{1};
    Experience experience_;
    uint64_t calls_ = 0;
    uint64_t next_question_ = kFirstQuestion;
    double price_s_ = 0;
    double unpaid_s_ = 0;
    double took_s_ = 0;
    bool introduced_ = false;
    bool ready_ = false;

    static constexpr uint64_t kFirstQuestion = 4;
};

}  // namespace flx::preload

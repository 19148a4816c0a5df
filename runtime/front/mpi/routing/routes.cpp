#include "runtime/front/mpi/routing/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace flx::preload {
namespace {

/// The part of MPI's time that FLX is taken to save where nothing is known. It decides when FLX is tried, not who gets
/// a class.
constexpr double kGuess = 0.3;
/// Where that is a guess, it must exceed the price so many times.
constexpr double kCaution = 4;
/// The part of its calls' time that a class may lose by trying the slower way again.
constexpr double kWorthTrying = 0.01;
constexpr uint64_t kLeastBetweenTrials = 64;
/// After so many trials in which what went by turns spoke against what is remembered, the latter is of other times.
constexpr uint8_t kMostUndecided = 4;
/// So many calls are all timed, then one in so many.
constexpr uint64_t kAllTimed = 64;
constexpr uint64_t kOneTimedIn = 8;
/// Calls that a mean remembers.
constexpr uint32_t kRemembered = 256;
/// What is known of the slower way counts as so many calls when that is tried again: it is of long ago.
constexpr uint32_t kOldWeight = 8;
/// Calls for which what other programs measured is believed.
constexpr uint64_t kLongestTrust = 1024;
/// A call that takes so many times the mean was held up by something else, and counts as this much.
constexpr double kHeldUp = 16;

/// What the names of classes end with whose data are there.
constexpr std::string_view kOnGpus = " gpu";

/// Whether that call is one of those. Not every eighth, as programs have rhythms.
bool is_sampled(uint64_t call) {
    return call < kAllTimed || (call * 0x9e3779b97f4a7c15ULL >> 32U) % kOneTimedIn == 0;
}

}  // namespace

std::string CallClass::name() const {
    const size_t size = index_ % kSizes;
    const std::string_view collective = kCollectives[index_ % kHostCount / kSizes];
    const std::string_view where = index_ < kHostCount ? "" : kOnGpus;
    if (size == kSizes - 1)
        return fmt::format("{} any{}", collective, where);
    return fmt::format("{} {}{}", collective, size == 0 ? 0 : size_t{1} << (2 * size - 2), where);
}

bool CallClass::from_name(std::string_view name, CallClass &which) {
    const bool on_gpus = name.ends_with(kOnGpus);
    if (on_gpus)
        name.remove_suffix(kOnGpus.size());
    const size_t space = name.find(' ');
    if (space == std::string_view::npos)
        return false;
    const auto *const found = std::find(kCollectives.begin(), kCollectives.end(), name.substr(0, space));
    if (found == kCollectives.end())
        return false;
    const std::string_view number = name.substr(space + 1);
    size_t bytes = kBytesUnknown;
    if (number != "any") {
        const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), bytes);
        if (error != std::errc() || end != number.data() + number.size())
            return false;
    }
    which = CallClass(static_cast<Collective>(found - kCollectives.begin()), bytes);
    if (on_gpus)
        which = which.on_gpus();
    return true;
}

void Routes::introduce(Experience experience, double price_s, double unpaid_s) {
    experience_ = std::move(experience);
    experience_.resize(CallClass::kCount);
    price_s_ = price_s;
    unpaid_s_ = unpaid_s;
    introduced_ = true;
}

double Routes::waited() const {
    double sum = 0;
    for (const Course &course : courses_)
        sum += course.waiting_s;
    return sum;
}

double Routes::saving() const {
    double known = 0;
    double guessed = 0;
    for (size_t c = 0; c < CallClass::kCount; ++c) {
        const double waiting = course(CallClass(c)).waiting_s;
        if (waiting == 0)
            continue;
        const Times times = this->times(CallClass(c));
        if (times.known())
            known += waiting * std::max(0.0, 1 - times.flx / times.mpi);
        else
            guessed += waiting * kGuess;
    }
    return unpaid_s_ + known + guessed / kCaution;
}

void Routes::wait_longer(double reached, double wanted) {
    // When it will be reached if calls go on as before, but neither at once nor much later than now.
    constexpr double kSoonest = 1.2;
    const double times = reached > 0 ? std::clamp(wanted / reached, kSoonest, 2.0) : 2.0;
    next_question_ = std::max(calls_ + 1, static_cast<uint64_t>(static_cast<double>(calls_) * times));
}

void Routes::begin(double took_s) {
    ready_ = true;
    took_s_ = took_s;
    // What calls took while the program began says little of those to come.
    for (Course &course : courses_) {
        course.mpi = {};
        course.until_next = kFirstRun;
    }
    for (size_t c = 0; c < CallClass::kCount; ++c) {
        const Times times = this->times(CallClass(c));
        if (!times.known())
            continue;
        Course &course = course_of(CallClass(c));
        course.mpi = {times.mpi, kOldWeight};
        course.flx = {times.flx, kOldWeight};
        course.settled = times.flx < times.mpi ? Route::flx : Route::mpi;
        const double trial = kAgreementS + 0.5 * kTurns * std::abs(times.mpi - times.flx);
        course.until_next =
            std::min(calls_between_trials(course, trial, std::min(times.mpi, times.flx)), kLongestTrust);
    }
}

Routes::Course &Routes::course_of(CallClass which) {
    uint16_t &place = place_[which.index()];
    if (place == 0) {
        place = static_cast<uint16_t>(courses_.size());
        courses_.emplace_back();
    }
    return courses_[place];
}

void Routes::Mean::add(double sample) {
    if (calls != 0)
        sample = std::min(sample, kHeldUp * seconds);
    calls = std::min(calls + 1, kRemembered);
    seconds += (sample - seconds) / calls;
}

Evidence Routes::measured(CallClass which) const {
    const Course &course = this->course(which);
    return {.by_turns = {course.mpi_by_turns.seconds, course.flx_by_turns.seconds},
            .remembered = {course.mpi.seconds, course.flx.seconds}};
}

bool Routes::settle(CallClass which, const Evidence &mean, double agreement_s) {
    Course &course = course_of(which);
    // A clock that did not move must not look like a time that was not measured.
    static constexpr double kLeast = 1e-9;
    const auto known = [](const Times &times) {
        return Times{std::max(times.mpi, kLeast), std::max(times.flx, kLeast)};
    };
    const Times by_turns = known(mean.by_turns);
    const Times remembered = known(mean.remembered);
    const auto faster = [](const Times &times) { return times.flx < times.mpi ? Route::flx : Route::mpi; };
    const bool agree = faster(by_turns) == faster(remembered);
    course.turn = kIdle;
    if (!agree && ++course.undecided < kMostUndecided) {
        course.until_next = kLeastBetweenTrials;  // what a trial costs is not known either
        return false;
    }

    Times &times = experience_[which.index()];
    times = agree ? remembered : by_turns;
    course.saved_s += static_cast<double>(course.by_flx - course.counted) * (times.mpi - times.flx);
    course.counted = course.by_flx;
    course.settled = faster(times);
    course.trials = static_cast<uint8_t>(std::min(course.trials + 1, 20));
    const auto loss = [](const Times &times) { return std::abs(times.mpi - times.flx); };
    const double trial = agreement_s + 0.5 * kTurns * std::min(loss(by_turns), loss(remembered));
    course.until_next = calls_between_trials(course, trial, std::min(times.mpi, times.flx));
    if (!agree) {
        course.mpi.seconds = by_turns.mpi;
        course.flx.seconds = by_turns.flx;
    }
    course.undecided = 0;
    course.mpi_by_turns = {};
    course.flx_by_turns = {};
    return true;
}

uint64_t Routes::calls_between_trials(const Course &course, double trial_s, double call_s) {
    const double calls = std::min(trial_s / (kWorthTrying * call_s), 1e15);
    return std::max(static_cast<uint64_t>(calls), kLeastBetweenTrials << course.trials);
}

Route Routes::route(CallClass which) const {
    if (!ready_)
        return Route::mpi;
    const Course &course = this->course(which);
    const Route other = course.settled == Route::flx ? Route::mpi : Route::flx;
    return course.turn == kIdle || course.turn / kInARow % 2 == 1 ? course.settled : other;
}

bool Routes::wants_time(CallClass which) const {
    const Course &course = this->course(which);
    return course.turn != kIdle || is_sampled(course.by_flx + course.by_mpi);
}

void Routes::carried_out(CallClass which, Route route, double seconds) {
    const bool timed = wants_time(which);
    Course &course = course_of(which);
    const bool trial = course.turn != kIdle;
    if (timed && !(trial && course.turn % kInARow == 0)) {
        (route == Route::flx ? course.flx : course.mpi).add(seconds);
        if (trial)
            (route == Route::flx ? course.flx_by_turns : course.mpi_by_turns).add(seconds);
    }
    if (!ready_) {
        if (timed)
            course.waiting_s += course.by_mpi < kAllTimed ? seconds : seconds * kOneTimedIn;
        ++calls_;
    }
    ++(route == Route::flx ? course.by_flx : course.by_mpi);
    if (trial) {
        ++course.turn;
    } else if (course.until_next > 1) {
        --course.until_next;
    } else if (ready_) {
        course.turn = 0;
        Mean &other = course.settled == Route::flx ? course.mpi : course.flx;
        other.calls = std::min(other.calls, kOldWeight);
    }
}

double Routes::saved(CallClass which) const {
    const Course &course = this->course(which);
    const Times times = this->times(which);
    const double rest =
        times.known() ? static_cast<double>(course.by_flx - course.counted) * (times.mpi - times.flx) : 0;
    return course.saved_s + rest;
}

}  // namespace flx::preload

#include "runtime/front/mpi/routes.h"

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
/// What the ranks' agreement at a trial's end costs.
constexpr double kAgreementS = 30e-6;
constexpr uint64_t kLeastBetweenTrials = 64;
/// Before FLX has a communicator, so many calls are all timed, then one in so many.
constexpr uint64_t kAllTimed = 64;
constexpr uint64_t kOneTimedIn = 8;

double middle(std::array<double, Routes::kSamples> times) {
    std::sort(times.begin(), times.end());
    // Noise only adds: the lower one of the two in the middle.
    return times[(times.size() - 1) / 2];
}

}  // namespace

bool waits_for_all(Collective collective) {
    switch (collective) {
        case Collective::bcast:
        case Collective::exscan:
        case Collective::gather:
        case Collective::gatherv:
        case Collective::reduce:
        case Collective::scan:
        case Collective::scatter:
        case Collective::scatterv:
        case Collective::alltoallv:  // who has nothing for others does not
        case Collective::alltoallw:
            return false;
        default:
            return true;
    }
}

std::string CallClass::name() const {
    const size_t size = index_ % kSizes;
    const std::string_view collective = kCollectives[index_ / kSizes];
    if (size == kSizes - 1)
        return fmt::format("{} any", collective);
    return fmt::format("{} {}", collective, size == 0 ? 0 : size_t{1} << (2 * size - 2));
}

bool CallClass::from_name(std::string_view name, CallClass &which) {
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
    return true;
}

void Routes::introduce(Experience experience, double price_s, double unpaid_s) {
    experience_ = std::move(experience);
    experience_.resize(CallClass::kCount);
    price_s_ = price_s;
    unpaid_s_ = unpaid_s;
    introduced_ = true;
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

void Routes::wait_longer(double saving, double price) {
    // When it will be reached if calls go on as before, but neither at once nor much later than now.
    constexpr double kSoonest = 1.2;
    const double times = saving > 0 ? std::clamp(price / saving, kSoonest, 2.0) : 2.0;
    next_question_ = std::max(calls_ + 1, static_cast<uint64_t>(static_cast<double>(calls_) * times));
}

void Routes::begin(double took_s) {
    ready_ = true;
    took_s_ = took_s;
    for (size_t c = 0; c < CallClass::kCount; ++c) {
        const Times times = this->times(CallClass(c));
        if (!times.known())
            continue;
        Course &course = course_of(CallClass(c));
        course.settled = times.flx < times.mpi ? Route::flx : Route::mpi;
        schedule_next(course, times);
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

Route Routes::route_of_turn(uint8_t turn) {
    // By pairs: FLX and MPI, the same again, MPI and FLX, FLX and MPI, MPI and FLX. Neither is always the first.
    constexpr uint32_t kByFlx = 0b10'0110'0101;
    return (kByFlx >> turn & 1U) != 0 ? Route::flx : Route::mpi;
}

Routes::Samples Routes::samples(CallClass which) const {
    Samples samples = course(which).samples;
    if (waits_for_all(which.collective()))
        for (double &sample : samples)
            sample = -sample;
    return samples;
}

void Routes::settle(CallClass which, const Samples &greatest) {
    Course &course = course_of(which);
    std::array<double, kSamples> mpi{};
    std::array<double, kSamples> flx{};
    for (size_t i = 0; i < kSamples; ++i) {
        mpi[i] = std::abs(greatest[i]);
        flx[i] = std::abs(greatest[kSamples + i]);
    }
    // A clock that did not move must not look like a time that was not measured.
    constexpr double kLeast = 1e-9;
    Times &times = experience_[which.index()];
    times = {std::max(middle(mpi), kLeast), std::max(middle(flx), kLeast)};
    course.saved_s += static_cast<double>(course.by_flx - course.counted) * (times.mpi - times.flx);
    course.counted = course.by_flx;
    course.settled = times.flx < times.mpi ? Route::flx : Route::mpi;
    course.trials = static_cast<uint8_t>(std::min(course.trials + 1, 20));
    schedule_next(course, times);
}

void Routes::schedule_next(Course &course, const Times &times) {
    const double winner = std::min(times.mpi, times.flx);
    const double loss = kAgreementS + (1 + kSamples) * std::abs(times.mpi - times.flx);
    const double calls = std::min(loss / (kWorthTrying * winner), 1e15);
    course.turn = kIdle;
    course.until_next = std::max(static_cast<uint64_t>(calls), kLeastBetweenTrials << course.trials);
}

Route Routes::route(CallClass which) const {
    if (!ready_)
        return Route::mpi;
    const Course &course = this->course(which);
    return course.turn == kIdle ? course.settled : route_of_turn(course.turn);
}

bool Routes::wants_time(CallClass which) const {
    if (!ready_)
        return calls_ < kAllTimed || calls_ % kOneTimedIn == 0;
    return course(which).turn < kTurns;
}

void Routes::carried_out(CallClass which, Route route, double seconds) {
    Course &course = course_of(which);
    ++(route == Route::flx ? course.by_flx : course.by_mpi);
    if (!ready_) {
        course.waiting_s += calls_ < kAllTimed ? seconds : seconds * kOneTimedIn;
        ++calls_;
        return;
    }
    if (course.turn == kIdle) {
        if (--course.until_next == 0)
            course.turn = 0;
        return;
    }
    if (course.turn >= 2) {
        // The two ways come by pairs, so the pair's number is the sample's.
        const size_t pair = course.turn / 2 - 1;
        course.samples[route == Route::flx ? kSamples + pair : pair] = seconds;
    }
    ++course.turn;
}

double Routes::saved(CallClass which) const {
    const Course &course = this->course(which);
    const Times times = this->times(which);
    const double rest =
        times.known() ? static_cast<double>(course.by_flx - course.counted) * (times.mpi - times.flx) : 0;
    return course.saved_s + rest;
}

}  // namespace flx::preload

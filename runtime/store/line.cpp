#include "runtime/store/line.h"

#include <poll.h>
#include <sched.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "runtime/base/log.h"

namespace flx::store {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kJoining = 0;  // the group of answers that are of none

double seconds_until(std::chrono::steady_clock::time_point then) {
    return std::chrono::duration<double>(then - std::chrono::steady_clock::now()).count();
}

/// An answer that is an error.
Status error_of(const Frame &answer) {
    return {fault_of(answer.header.index), answer.text()};
}

struct Lines {
    std::mutex mutex;
    struct Known {
        uint64_t process = 0;  ///< for good, by which the store knows this rank again
        std::weak_ptr<Line> line;
    };
    std::map<std::string, Known> at;

    static Lines &object() {
        static Lines lines;
        return lines;
    }
};

}  // namespace

Status Line::join(const Place &place, std::shared_ptr<Line> &result, uint64_t &group) {
    Lines &lines = Lines::object();
    const std::string key = fmt::format("{} as rank {}", place.text(), place.rank);
    std::shared_ptr<Line> line;
    {
        const std::lock_guard guard(lines.mutex);
        Lines::Known &known = lines.at[key];
        line = known.line.lock();
        if (line && (line->ended() || line->place_.size != place.size))
            line.reset();
        if (!line) {
            if (known.process == 0 &&
                getrandom(&known.process, sizeof known.process, 0) != static_cast<ssize_t>(sizeof known.process))
                return fail(Fault::no_secret, "the system gave no random numbers: getrandom: {}", std::strerror(errno));
            line = std::make_shared<Line>(place, known.process);
            if (place.rank == 0)
                FLX_TRY(Server::hold(place, line->server_));
            known.line = line;
        }
    }
    const auto until =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(place.deadline_s));
    bool again = true;
    while (again)
        FLX_TRY(line->join_once(until, group, again));
    result = std::move(line);
    return {};
}

/// Connects, if need be. Who finds nobody comes again: ranks start in any order.
Status Line::connect(Clock::time_point until) {
    constexpr auto kFirstPause = 10ms;
    constexpr auto kLongestPause = 250ms;
    constexpr double kOneTryS = 3;
    std::chrono::milliseconds pause = kFirstPause;
    std::string why;
    while (!connect_to(place_, std::clamp(seconds_until(until), 0.05, kOneTryS), socket_, why)) {
        if (Clock::now() > until)
            return fail(
                Fault::no_store,
                "rank {} found no store at {} within {:g} s (FLX_DEADLINE): {}; rank 0 keeps it there, with the "
                "same MASTER_ADDR and MASTER_PORT",
                place_.rank, place_.text(), place_.deadline_s, why);
        std::this_thread::sleep_for(pause);
        pause = std::min(pause * 2, std::chrono::milliseconds(kLongestPause));
    }
    in_ = {};
    out_ = {};
    refused_.reset();
    why_ended_.clear();
    return {};
}

/// `again`: the store went before it answered, as one does that is about to end, or that has too many others to hear.
Status Line::join_once(Clock::time_point until, uint64_t &group, bool &again) {
    again = false;
    const std::lock_guard guard(mutex_);
    if (socket_.get() < 0 || !why_ended_.empty())
        FLX_TRY(connect(until));
    Join wish;
    wish.size = static_cast<uint32_t>(place_.size);
    wish.rank = static_cast<uint32_t>(place_.rank);
    wish.process = process_;
    wish.deadline_s = place_.deadline_s;
    Header header;
    header.kind = Kind::join;
    header.bytes = sizeof wish;
    out_.put(header, std::as_bytes(std::span(&wish, 1)));
    std::deque<Frame> &answers = came_[kJoining];
    while (answers.empty() && !refused_) {
        if (!out_.send_some(socket_.get()) && why_ended_.empty())
            why_ended_ = "it closed the connection";
        pollfd wait{socket_.get(), static_cast<short>(POLLIN | (out_.empty() ? 0 : POLLOUT)), 0};
        poll(&wait, 1, static_cast<int>(std::clamp(seconds_until(until), 0.0, 0.1) * 1e3) + 1);
        pump();
        if (!answers.empty() || refused_)
            break;
        if (!why_ended_.empty() && !foreign_ && Clock::now() < until) {
            std::this_thread::sleep_for(50ms);
            again = true;
            return {};
        }
        if (!why_ended_.empty() || Clock::now() > until)
            return fail(Fault::no_store,
                        "what listens at {} is no store of FLX: {}; rank 0 keeps that at its MASTER_ADDR and "
                        "MASTER_PORT, which no other program uses",
                        place_.text(),
                        why_ended_.empty() ? fmt::format("it said nothing for {:g} s (FLX_DEADLINE)", place_.deadline_s)
                                           : why_ended_);
    }
    if (answers.empty())
        return error_of(*refused_);
    group = answers.front().header.group;
    answers.pop_front();
    return {};
}

uint64_t Line::new_id() {
    const std::lock_guard guard(mutex_);
    return (static_cast<uint64_t>(place_.rank) + 1) << 32 | ++ids_;
}

bool Line::ended() {
    const std::lock_guard guard(mutex_);
    if (socket_.get() >= 0)
        pump();
    return !why_ended_.empty();
}

void Line::pump() {
    if (!why_ended_.empty())
        return;
    constexpr size_t kAtOnce = 16U << 20;
    const bool closed = in_.read(socket_.get(), in_.size() + kAtOnce) == Incoming::Ended::closed;
    Frame frame;
    auto ended = Incoming::Ended::no;
    while (in_.next(frame, kMostBytes, ended)) {
        if (frame.header.kind == Kind::refused)
            refused_ = std::move(frame);
        else
            came_[frame.header.kind == Kind::joined ? kJoining : frame.header.group].push_back(std::move(frame));
        frame = {};
    }
    foreign_ = ended == Incoming::Ended::foreign;
    if (refused_)
        why_ended_ = refused_->text();
    else if (foreign_)
        why_ended_ = fmt::format("it said \"{}\"", in_.beginning());
    else if (closed)
        why_ended_ = "it closed the connection";
}

Status Line::broken() const {
    if (refused_)
        return error_of(*refused_);
    return fail(
        Fault::peer_died,
        "the store at {}, in which ranks meet, has ended ({}): rank 0, in whose process it is, ended, or dropped "
        "this rank",
        place_.text(), why_ended_);
}

Status Line::send(Kind kind, uint64_t group, uint32_t index, std::span<const std::byte> payload) {
    const std::lock_guard guard(mutex_);
    const size_t most = kind == Kind::gather ? kMostBytes / static_cast<size_t>(place_.size) : most_of_one(place_.size);
    if (payload.size() > most)
        return fail(Fault::no_store, "a rank would tell the others {} bytes while ranks meet, and their store takes {}",
                    payload.size(), most);
    Header header;
    header.kind = kind;
    header.index = index;
    header.group = group;
    header.bytes = static_cast<uint32_t>(payload.size());
    out_.put(header, payload);
    while (!out_.empty()) {
        if (!why_ended_.empty())
            return broken();
        if (!out_.send_some(socket_.get())) {
            pump();
            if (why_ended_.empty())
                why_ended_ = "it closed the connection";
            return broken();
        }
        if (out_.empty())
            break;
        pollfd wait{socket_.get(), POLLOUT, 0};
        poll(&wait, 1, 100);
    }
    return {};
}

Status Line::receive(uint64_t group, const std::function<Status()> &meanwhile, Frame &answer) {
    constexpr int kNapMs = 5;  // another thread may have read what this one waits for
    const auto began = Clock::now();
    bool warned = false;
    for (;;) {
        {
            const std::lock_guard guard(mutex_);
            pump();
            std::deque<Frame> &came = came_[group];
            if (!came.empty()) {
                answer = std::move(came.front());
                came.pop_front();
                if (came.empty())
                    came_.erase(group);
                if (answer.header.kind == Kind::failed)
                    return error_of(answer);
                if (answer.header.kind != Kind::late)
                    return {};
                log().warn("{}", answer.text());
                warned = true;
                continue;
            }
            if (!why_ended_.empty())
                return broken();
        }
        if (!warned && -seconds_until(began) > 2 * place_.deadline_s) {
            log().warn("the store at {}, which rank 0 keeps, has not answered for {:g} s", place_.text(),
                       2 * place_.deadline_s);
            warned = true;
        }
        if (meanwhile) {
            FLX_TRY(meanwhile());
            sched_yield();
        } else {
            pollfd wait{socket_.get(), POLLIN, 0};
            poll(&wait, 1, kNapMs);
        }
    }
}

}  // namespace flx::store

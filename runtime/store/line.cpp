#include "runtime/store/line.h"

#include <poll.h>
#include <sched.h>
#include <sys/random.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/link/of_this_process.h"

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

    static Lines &object() { return of_this_process<Lines>(); }
};

}  // namespace

Status Line::join(const Place &place, const Meanwhile &meanwhile, std::shared_ptr<Line> &result, uint64_t &group) {
    const auto until =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(place.deadline_s));
    bool again = true;
    std::shared_ptr<Line> line;
    while (again) {
        FLX_TRY(find(place, line));
        FLX_TRY(line->join_once(place.deadline_s, until, meanwhile, group, again));
    }
    Lines &lines = Lines::object();
    const std::lock_guard guard(lines.mutex);
    lines.at[key_of(place)].line = line;
    result = std::move(line);
    return {};
}

std::string Line::key_of(const Place &place) {
    return fmt::format("{} as rank {}", place.text(), place.rank);
}

/// One of another size is not another's to use, and does not take the place of one that lives before it has joined.
Status Line::find(const Place &place, std::shared_ptr<Line> &line) {
    Lines &lines = Lines::object();
    const std::lock_guard guard(lines.mutex);
    Lines::Known &known = lines.at[key_of(place)];
    const std::shared_ptr<Line> living = known.line.lock();
    const bool lives = living && !living->ended();
    line = lives && living->place_.size == place.size ? living : nullptr;
    if (line)
        return {};
    if (known.process == 0 &&
        getrandom(&known.process, sizeof known.process, 0) != static_cast<ssize_t>(sizeof known.process))
        return fail(Fault::no_secret, "the system gave no random numbers: getrandom: {}", std::strerror(errno));
    line = std::make_shared<Line>(place, known.process);
    if (place.rank == 0)
        FLX_TRY(Server::hold(place, line->server_));
    if (!lives)
        known.line = line;
    return {};
}

/// Once for each line. Who finds nobody comes again: ranks start in any order.
Status Line::connect(double deadline_s, Clock::time_point until, const Meanwhile &meanwhile) {
    constexpr Clock::duration kFirstPause = 10ms;
    constexpr Clock::duration kLongestPause = 250ms;
    constexpr double kOneTryS = 3;
    std::unique_lock connecting(connecting_, std::try_to_lock);
    while (!connecting) {  // another thread does, which may come to an end without
        FLX_TRY(nap(Clock::now() + 1ms, meanwhile));
        connecting.try_lock();
    }
    if (connected_)
        return {};
    Clock::duration pause = kFirstPause;
    std::string why;
    while (!connect_to(place_, std::clamp(seconds_until(until), 0.05, kOneTryS), meanwhile, socket_, why)) {
        if (Clock::now() > until)
            return fail(
                Fault::no_store,
                "rank {} found no store at {} within {:g} s (FLX_DEADLINE): {}; rank 0 keeps it there, with the "
                "same MASTER_ADDR and MASTER_PORT",
                place_.rank, place_.text(), deadline_s, why);
        FLX_TRY(nap(Clock::now() + pause, meanwhile));
        pause = std::min(pause * 2, kLongestPause);
    }
    connected_ = true;
    return {};
}

Status Line::nap(Clock::time_point until, const Meanwhile &meanwhile) {
    if (!meanwhile)
        std::this_thread::sleep_until(until);
    while (meanwhile && Clock::now() < until) {
        FLX_TRY(meanwhile());
        sched_yield();
    }
    return {};
}

/// `again`: the store went before it answered, as one does that is about to end, or that has too many others to hear.
/// Then another line has to come, since others may still wait for what this one brought.
Status Line::join_once(double deadline_s, Clock::time_point until, const Meanwhile &meanwhile, uint64_t &group,
                       bool &again) {
    again = false;
    FLX_TRY(connect(deadline_s, until, meanwhile));
    Join wish;
    wish.size = static_cast<uint32_t>(place_.size);
    wish.rank = static_cast<uint32_t>(place_.rank);
    wish.process = process_;
    wish.deadline_s = deadline_s;
    Header header;
    header.kind = Kind::join;
    header.bytes = sizeof wish;
    std::unique_lock lock(mutex_);
    out_.put(header, std::as_bytes(std::span(&wish, 1)));
    for (;;) {
        if (why_ended_.empty() && !out_.send_some(socket_.get())) {
            pump();
            if (why_ended_.empty())
                why_ended_ = "it closed the connection";
        }
        pump();
        if (std::deque<Frame> &answers = came_[kJoining]; !answers.empty()) {
            group = answers.front().header.group;
            answers.pop_front();
            return {};
        }
        if (refused_)
            return error_of(*refused_);
        const bool ended = !why_ended_.empty();
        const bool late = Clock::now() > until;
        again = ended && !foreign_ && !late;
        if ((ended && !again) || late)
            return fail(Fault::no_store,
                        "what listens at {} is no store of FLX: {}; rank 0 keeps that at its MASTER_ADDR and "
                        "MASTER_PORT, which no other program uses",
                        place_.text(),
                        ended ? why_ended_ : fmt::format("it said nothing for {:g} s (FLX_DEADLINE)", deadline_s));
        const short events = static_cast<short>(POLLIN | (out_.empty() ? 0 : POLLOUT));
        lock.unlock();
        if (again)
            return nap(Clock::now() + 50ms, meanwhile);
        if (meanwhile) {
            FLX_TRY(meanwhile());
            sched_yield();
        } else {
            pollfd wait{socket_.get(), events, 0};
            poll(&wait, 1, 5);  // another thread may have read what this one waits for
        }
        lock.lock();
    }
}

/// Of the process's random number, since groups may live on at the store when their first member has gone and come
/// again.
uint64_t Line::new_id() const {
    static std::atomic<uint64_t> made = 0;
    constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;
    uint64_t id = 0;
    while (id < kRootLimit)
        id = process_ + kOdd * ++made;
    return id;
}

bool Line::ended() {
    const std::lock_guard guard(mutex_);
    if (connected_)
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

Status Line::receive(uint64_t group, const Meanwhile &meanwhile, Frame &answer) {
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

#include "runtime/store/server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <system_error>
#include <utility>

#include "runtime/base/log.h"
#include "runtime/base/own_thread.h"
#include "runtime/link/of_this_process.h"

namespace flx::store {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr size_t kStrangers = 256;              // connections that have not joined
constexpr Clock::duration kStrangerStays = 3s;  // at most
constexpr size_t kAccepted = 64;                // in one turn
constexpr Clock::duration kDoorShut = 100ms;    // where there is no descriptor for another connection
constexpr size_t kHeardAtOnce = 1 << 20;        // bytes that one rank is heard before it is another's turn

}  // namespace

/// The servers of this process. They end with it, or when its library is unloaded.
struct Servers {
    std::mutex mutex;
    std::map<std::string, std::unique_ptr<Server>> at;
    uint64_t made = 0;

    static Servers &object() { return of_this_process<Servers>(); }
    ~Servers() {
        for (auto &[place, server] : at) {
            const std::lock_guard guard(mutex);
            server->stop_ = true;
        }
        at.clear();
    }
};

Status Server::hold(const Place &place, std::unique_ptr<Hold> &result) {
    Servers &servers = Servers::object();
    const std::lock_guard guard(servers.mutex);
    std::erase_if(servers.at, [](const auto &entry) { return entry.second->over_; });
    std::unique_ptr<Server> &server = servers.at[place.text()];
    if (!server) {
        server = std::make_unique<Server>(place, ++servers.made);
        if (Status status = server->start(); !status.ok()) {
            servers.at.erase(place.text());
            return status;
        }
    }
    ++server->holds_;
    result = std::make_unique<Hold>(place.text(), server->number_);
    return {};
}

Server::Hold::~Hold() {
    Servers &servers = Servers::object();
    const std::lock_guard guard(servers.mutex);
    const auto found = servers.at.find(place_);
    if (found == servers.at.end() || found->second->number_ != number_)
        return;
    --found->second->holds_;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t wrote = write(found->second->wake_.get(), &one, sizeof one);
}

Status Server::start() {
    (void)descriptors(static_cast<size_t>(place_.size) + kStrangers);
    FLX_TRY(listen_at(place_, listener_));
    wake_.take([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
    if (wake_.get() < 0)
        return fail(Fault::no_descriptor, "there is no descriptor for the store in which ranks meet: {}",
                    std::strerror(errno));
    try {
        thread_ = own_thread([this] { run(); });
    } catch (const std::system_error &error) {
        return fail(Fault::no_thread, "the thread of the store in which ranks meet cannot be started: {}",
                    error.what());
    }
    return {};
}

Server::~Server() {
    if (!thread_.joinable())
        return;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t wrote = write(wake_.get(), &one, sizeof one);
    thread_.join();
}

/// Whether nobody needs it any more. Then nobody else finds it, either.
bool Server::may_end() {
    Servers &servers = Servers::object();
    const std::lock_guard guard(servers.mutex);
    const bool joined = std::any_of(lines_.begin(), lines_.end(), [](const Line &line) { return line.rank >= 0; });
    over_ = stop_ || (holds_ == 0 && !joined);
    return over_;
}

void Server::run() {
    try {
        while (!may_end())
            turn();
    } catch (const std::exception &error) {
        give_up(error.what());
    }
    listener_.close();
    lines_.clear();
}

void Server::turn() {
    polled_.assign({{wake_.get(), POLLIN, 0}});
    polled_.push_back({Clock::now() < shut_until_ ? -1 : listener_.get(), POLLIN, 0});
    for (const Line &line : lines_)
        polled_.push_back({line.socket.get(), static_cast<short>(POLLIN | (line.out.empty() ? 0 : POLLOUT)), 0});
    poll(polled_.data(), polled_.size(), patience_ms());
    uint64_t woken = 0;
    [[maybe_unused]] const ssize_t drained = read(wake_.get(), &woken, sizeof woken);
    size_t at = 2;
    for (Line &line : lines_)
        if (polled_[at++].revents != 0)
            serve(line);
    drop_ended();
    accept_some();
    look_for_late();
    for (Line &line : lines_)
        if ((!line.out.empty() && !line.out.send_some(line.socket.get())) || (line.refused && line.out.empty()))
            line.ended = true;
    drop_ended();
}

/// What came before a rank went was heard; now whoever waits for it is told. That may end others, too.
void Server::drop_ended() {
    for (bool more = true; more;) {
        more = false;
        for (Line &line : lines_)
            if (line.ended && line.rank >= 0) {
                end(line);
                more = true;
            }
    }
    lines_.remove_if([](const Line &line) { return line.ended; });
}

/// Memory is short, say. Ranks are told as far as that goes without waiting.
void Server::give_up(const char *why) noexcept {
    {
        Servers &servers = Servers::object();
        const std::lock_guard guard(servers.mutex);
        over_ = true;
    }
    try {
        groups_.clear();
        const std::string words =
            fmt::format("the store at {}, in which ranks meet, has ended: {}", place_.text(), why);
        log().error("{}", words);
        for (Line &line : lines_) {
            line.in = {};
            refuse(line, Fault::no_store, words);
            [[maybe_unused]] const bool open = line.out.send_some(line.socket.get());
        }
    } catch (const std::exception &) {  // then they see that it is gone
    }
}

/// Until there is something to do by the clock.
int Server::patience_ms() const {
    const auto now = Clock::now();
    auto next = now + 1h;
    if (now < shut_until_)
        next = shut_until_;
    for (const Line &line : lines_)
        if (line.rank < 0)
            next = std::min(next, line.since + kStrangerStays);
    for (const auto &[id, group] : groups_)
        for (const Member &member : group.members)
            if (group.told != 0 && !group.warned && member.told && member.line != nullptr)
                next = std::min(next, group.since + std::chrono::duration_cast<Clock::duration>(
                                                        std::chrono::duration<double>(member.line->deadline_s)));
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(next - now).count() + 1;
    return static_cast<int>(std::clamp<int64_t>(left, 1, 3'600'000));
}

/// Ranks speak at once, so of strangers those go that have been silent for longest.
void Server::accept_some() {
    const auto now = Clock::now();
    lines_.remove_if([&](const Line &line) { return line.rank < 0 && now - line.since > kStrangerStays; });
    auto strangers = static_cast<size_t>(
        std::count_if(lines_.begin(), lines_.end(), [](const Line &line) { return line.rank < 0; }));
    for (size_t accepted = 0; accepted < kAccepted && now >= shut_until_; ++accepted) {
        Line &line = lines_.emplace_back();
        line.socket.take([&] { return accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
        if (line.socket.get() < 0) {
            const int error = errno;
            lines_.pop_back();
            if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ECONNABORTED)
                return;
            if (!std::exchange(said_shut_, true))
                log().warn("the store at {}, in which ranks meet, cannot take another connection for now: {}",
                           place_.text(), std::strerror(error));
            shut_until_ = now + kDoorShut;
            return;
        }
        tune(line.socket.get());
        serve(line);
        if (line.ended) {
            if (line.rank >= 0)
                end(line);
            lines_.pop_back();
        } else if (line.rank < 0 && ++strangers > kStrangers) {
            lines_.erase(std::find_if(lines_.begin(), lines_.end(), [](const Line &each) { return each.rank < 0; }));
            --strangers;
        }
    }
}

void Server::serve(Line &line) {
    if (line.ended)
        return;
    // As long as it is a stranger, no more is taken than a rank would send first.
    const uint32_t most = line.rank < 0 ? sizeof(Join) : most_of_one(place_.size);
    bool closed =
        line.in.read(line.socket.get(), line.rank < 0 ? sizeof(Header) + most : line.in.size() + kHeardAtOnce) ==
        Incoming::Ended::closed;
    Frame frame;
    auto ended = Incoming::Ended::no;
    while (!line.refused && !line.ended && line.in.next(frame, most, ended))
        receive(line, frame);
    closed = closed || ended == Incoming::Ended::foreign;
    line.ended = line.ended || closed || (line.refused && line.out.empty());
}

void Server::receive(Line &line, const Frame &frame) {
    if (frame.header.kind == Kind::join && frame.payload.size() == sizeof(Join)) {
        Join wish;
        std::memcpy(&wish, frame.payload.data(), sizeof wish);
        join(line, wish);
    } else if (line.rank < 0) {
        line.ended = true;
    } else if (frame.header.kind == Kind::group) {
        make_group(line, frame);
    } else if (frame.header.kind == Kind::gather) {
        gather(line, frame);
    } else if (frame.header.kind == Kind::leave) {
        leave(frame.header.group, line.rank);
    }
}

void Server::tell(Line &line, const Header &header, const std::string &text) {
    Header sized = header;
    sized.bytes = static_cast<uint32_t>(text.size());
    line.out.put(sized, std::as_bytes(std::span(text)));
}

void Server::refuse(Line &line, Fault fault, const std::string &words) {
    last_refused_ = words;
    Header header;
    header.kind = Kind::refused;
    header.index = number_of(fault);
    tell(line, header, words);
    line.refused = true;
}

Server::Line *Server::line_of(int rank) {
    for (Line &line : lines_)
        if (line.rank == rank && !line.ended)
            return &line;
    return nullptr;
}

void Server::join(Line &line, const Join &wish) {
    const auto size = static_cast<uint32_t>(place_.size);
    if (wish.size != size)
        return refuse(
            line, Fault::wrong_place,
            fmt::format("rank {} says that there are {} ranks, and rank 0 that there are {}; WORLD_SIZE has to "
                        "be the same for all",
                        wish.rank, wish.size, size));
    if (wish.rank >= size || (line.rank >= 0 && line.rank != static_cast<int>(wish.rank)))
        return refuse(
            line, Fault::wrong_place,
            fmt::format("a process says that it is rank {} of {}; ranks are 0 to {}", wish.rank, size, size - 1));
    const auto rank = static_cast<int>(wish.rank);
    Line *other = line_of(rank);
    if (other != nullptr && other != &line && other->process == wish.process) {
        end(*other);
        other->ended = true;
        other = nullptr;
    }
    if (other != nullptr && other != &line)
        return refuse(
            line, Fault::wrong_place,
            fmt::format("two processes say that they are rank {}: one at {}, which came first, and one at {}; "
                        "each needs a RANK of its own",
                        rank, peer_of(other->socket.get()), peer_of(line.socket.get())));
    line.rank = rank;
    line.process = wish.process;
    constexpr double kShortest = 0.1;
    constexpr double kLongest = 86'400;
    line.deadline_s = wish.deadline_s > kShortest ? std::min(wish.deadline_s, kLongest) : kShortest;
    const uint32_t generation = ++joins_[wish.rank];
    Group &group = groups_[generation];
    if (group.members.empty()) {
        group.generation = generation;
        group.members.resize(size);
        for (uint32_t member = 0; member < size; ++member)
            group.members[member].rank = static_cast<int>(member);
    }
    group.members[wish.rank].line = &line;
    Header header;
    header.kind = Kind::joined;
    header.group = generation;
    tell(line, header, "");
}

std::vector<bool> Server::connected() const {
    std::vector<bool> ranks(static_cast<size_t>(place_.size));
    for (const Line &line : lines_)
        if (line.rank >= 0 && !line.ended)
            ranks[static_cast<size_t>(line.rank)] = true;
    return ranks;
}

void Server::make_group(Line &line, const Frame &frame) {
    const size_t size = frame.payload.size() / sizeof(uint32_t);
    std::vector<uint32_t> ranks(size);
    std::memcpy(ranks.data(), frame.payload.data(), size * sizeof(uint32_t));
    const bool right = frame.header.group >= kRootLimit && frame.header.index < size &&
                       ranks[frame.header.index] == static_cast<uint32_t>(line.rank) &&
                       std::all_of(ranks.begin(), ranks.end(), [&](uint32_t rank) { return rank < joins_.size(); });
    if (!right)
        return refuse(line, Fault::not_readable, "a rank sent the store a group that cannot be");
    Group &group = groups_[frame.header.group];
    if (group.members.empty()) {
        const std::vector<bool> there = connected();
        group.members.resize(size);
        for (size_t member = 0; member < size; ++member) {
            group.members[member].rank = static_cast<int>(ranks[member]);
            // It may have gone before the first member came here.
            if (!there[ranks[member]])
                group.members[member].gone = ++group.gone;
        }
    }
    if (group.members.size() != size || group.members[frame.header.index].rank != line.rank)
        return refuse(line, Fault::not_readable, "a rank sent the store a group that cannot be");
    group.members[frame.header.index].line = &line;
}

void Server::gather(Line &line, const Frame &frame) {
    const uint64_t id = frame.header.group;
    const auto found = groups_.find(id);
    if (found == groups_.end() || frame.header.index >= found->second.members.size() ||
        found->second.members[frame.header.index].line != &line ||
        found->second.members[frame.header.index].told.has_value())
        return refuse(line, Fault::not_readable, "a rank told the store something of a group that it is not in");
    Group &group = found->second;
    if (group.told++ == 0)
        group.since = Clock::now();
    group.members[frame.header.index].told = frame.payload;
    finish(id, group);
}

/// Tells all members what all have told; or that this will not be, where one of those that are awaited is gone: of
/// several the one that went first, as others may have gone because of it.
void Server::finish(uint64_t id, Group &group) {
    const size_t bytes = std::find_if(group.members.begin(), group.members.end(), [](const Member &member) {
                             return member.told.has_value();
                         })->told->size();
    const Member *first = nullptr;
    for (const Member &member : group.members) {
        if (member.gone != 0 && !member.told && (first == nullptr || member.gone < first->gone))
            first = &member;
        if (member.told && member.told->size() != bytes)
            return fail_all(id, group, Fault::not_readable, "ranks told the store things of different lengths");
    }
    if (first != nullptr)
        return fail_all(id, group, Fault::peer_died,
                        fmt::format("rank {} ended, or freed its communicator, while ranks made one; its own output "
                                    "says why",
                                    first->rank));
    if (group.told < group.members.size())
        return;
    const auto all = std::make_shared<std::vector<std::byte>>();
    all->reserve(bytes * group.members.size());
    for (const Member &member : group.members)
        all->insert(all->end(), member.told->begin(), member.told->end());
    Header header;
    header.kind = Kind::gathered;
    header.group = id;
    header.bytes = static_cast<uint32_t>(all->size());
    for (Member &member : group.members) {
        if (member.line != nullptr)
            member.line->out.put(header, all);
        member.told.reset();
    }
    group.told = 0;
    group.warned = false;
}

/// The process of rank 0, in which this runs, may end as soon as it is told, so it is the last.
void Server::fail_all(uint64_t id, Group &group, Fault fault, const std::string &words) {
    Header header;
    header.kind = Kind::failed;
    header.index = number_of(fault);
    header.group = id;
    for (size_t left = group.members.size(); left > 0; --left) {
        Member &member = group.members[left - 1];
        if (!member.told)
            continue;
        member.told.reset();
        if (member.line == nullptr)
            continue;
        tell(*member.line, header, words);
        if (!member.line->out.send_some(member.line->socket.get()))
            member.line->ended = true;
    }
    group.told = 0;
    group.warned = false;
}

void Server::leave(uint64_t id, int rank) {
    const auto found = groups_.find(id);
    if (found == groups_.end())
        return;
    Group &group = found->second;
    bool empty = true;
    for (Member &member : group.members) {
        if (member.rank == rank) {
            if (member.gone == 0)
                member.gone = ++group.gone;
            member.line = nullptr;
        }
        empty = empty && (member.gone != 0 || (member.line == nullptr && group.generation == 0));
    }
    if (empty)
        groups_.erase(found);
    else if (group.told != 0)
        finish(id, group);
}

void Server::end(Line &line) {
    const int rank = line.rank;
    line.rank = -1;
    std::vector<uint64_t> of;
    for (const auto &[id, group] : groups_)
        for (const Member &member : group.members)
            if (member.rank == rank && (member.line == &line || (member.line == nullptr && group.generation == 0)))
                of.push_back(id);
    for (const uint64_t id : of)
        leave(id, rank);
    // It may come again: for a communicator that it has not come to the others wait anew.
    for (auto &[id, group] : groups_)
        if (group.generation > joins_[static_cast<size_t>(rank)] && group.told != 0) {
            group.since = Clock::now();
            group.warned = false;
        }
}

/// Members that never came to the store end the wait for them; others are alive, and their peers are told.
void Server::look_for_late() {
    const auto now = Clock::now();
    for (auto &[id, group] : groups_) {
        if (group.told == 0 || group.warned)
            continue;
        double patience_s = 1e9;
        for (const Member &member : group.members)
            if (member.told && member.line != nullptr)
                patience_s = std::min(patience_s, member.line->deadline_s);
        if (std::chrono::duration<double>(now - group.since).count() < patience_s)
            continue;
        const std::vector<bool> there = connected();
        std::vector<int> absent;
        std::vector<int> late;
        for (const Member &member : group.members)
            if (!member.told)
                (!there[static_cast<size_t>(member.rank)] && member.gone == 0 ? absent : late).push_back(member.rank);
        if (!absent.empty() && group.generation != 0) {
            const std::string refused =
                last_refused_.empty() ? "" : fmt::format(". The last that was refused: {}", last_refused_);
            fail_all(
                id, group, Fault::peer_late,
                fmt::format("{} did not come to the store at {} within {:g} s (FLX_DEADLINE); {} of {} ranks did{}",
                            ranks_text(absent), place_.text(), patience_s, group.members.size() - absent.size(),
                            group.members.size(), refused));
            continue;
        }
        group.warned = true;
        Header header;
        header.kind = Kind::late;
        header.group = id;
        late.insert(late.end(), absent.begin(), absent.end());
        for (const Member &member : group.members)
            if (member.told && member.line != nullptr)
                tell(*member.line, header,
                     fmt::format("this rank makes a communicator and has waited {:g} s for {}, which is connected and "
                                 "has not come to it",
                                 patience_s, ranks_text(late)));
    }
}

}  // namespace flx::store

#include "runtime/process/liveness.h"

#include <net/if.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/own_thread.h"
#include "runtime/process/liveness_peer.h"

namespace flx {
namespace {

using liveness::Address;
using liveness::BrokenList;
using liveness::Datagram;
using liveness::Door;
using liveness::Kind;
using liveness::Origin;
using liveness::Path;
using liveness::Peer;
using liveness::Place;
using liveness::Route;
using liveness::Session;
using liveness::Stream;

constexpr int64_t kQuestionGap = 50 * kMs;      // between two questions to a peer
constexpr int64_t kPathQuestionGap = 20 * kMs;  // on a path, while there is no answer
/// Words that nobody took: a peer repeats what matters.
constexpr size_t kWordsKept = 1024;

/// A peer that is silent so long is asked over a stream as well, of which a new one is tried so often.
constexpr int64_t kStreamAfter = 200 * kMs;
constexpr int64_t kStreamGap = 500 * kMs;
/// A stream on which no peer has said anything goes after so long.
constexpr int64_t kUnprovenNs = 3000 * kMs;
/// Strangers may connect, too; the oldest of those that have not shown who they are makes room.
constexpr size_t kMostUnproven = 32;
constexpr size_t kMostStreams = 192;
/// Addresses: enough for any host, and descriptors for what else there is.
constexpr size_t kMostDoors = 32;
/// Datagrams that are taken before another socket has its turn, as many as a socket holds; and connections.
constexpr int kTurn = 256;

class Responder final : public Liveness {
  public:
    explicit Responder(uint64_t uid) : uid_(uid), process_(getpid()) {}

    ~Responder() override {
        if (!thread_.joinable())
            return;
        if (getpid() != process_) {  // a forked child, which has a copy of this object but not the thread
            thread_.detach();
            return;
        }
        ending_.store(true, std::memory_order_release);
        wake();
        thread_.join();
    }

    Status open() {
        FLX_TRY(liveness::Identity::make(identity_));
        place_ = liveness::local_place(identity_.key());
        if (Status status = add_door(liveness::loopback_address()); !status.ok()) {
            add_network();  // a network namespace whose loopback interface is down
            if (doors_.empty())
                return status;
        }
        wake_.take([] { return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
        if (wake_.get() < 0)
            return fail(Fault::no_descriptor, "cannot open an event descriptor for liveness: {}", std::strerror(errno));
        try {
            thread_ = own_thread([this] { respond(); });
        } catch (const std::system_error &error) {
            return fail(Fault::no_thread, "cannot start the liveness thread: {}", error.what());
        }
        return {};
    }

    void open_network() override {
        {
            const std::lock_guard lock(mutex_);
            add_network();
        }
        wake();  // to listen there, too
    }

    [[nodiscard]] std::string address() const override {
        const std::lock_guard lock(mutex_);
        return liveness::to_text(place_);
    }

    Status add_peer(uint64_t uid, const std::string &address) override {
        const std::optional<Place> place = liveness::parse_place(address);
        if (!place)
            return fail(Fault::wrong_inside, "liveness address \"{}\" is not \"host key address:port…\"", address);
        Peer peer;
        peer.host = place->host;
        peer.key = place->key;
        peer.listens = place->addresses;
        const std::lock_guard lock(mutex_);
        for (const Address &usable : liveness::usable_addresses(place_, *place))
            peer.paths.push_back(Path{usable});
        if (peer.paths.empty()) {
            return fail(Fault::no_address,
                        "no address of a peer can be asked whether it lives: it has {}, this process {}",
                        liveness::addresses_of(*place), liveness::addresses_of(place_));
        }
        uids_.emplace(liveness::name_of(place->key), uid);
        peers_.emplace(uid, std::move(peer));
        return {};
    }

    using Liveness::ask;
    void ask(uint64_t uid, uint32_t comm, uint64_t number) override {
        const int64_t now = now_ns();
        const std::lock_guard lock(mutex_);
        const auto found = peers_.find(uid);
        if (found == peers_.end())
            return;
        Peer &peer = found->second;
        if (peer.asked_ns != 0 && now - peer.asked_ns < kQuestionGap) {
            if (comm != peer.asked_comm) {
                peer.next_comm = comm;
                peer.next_number = number;
            }
            return;
        }
        // Two threads that wait on two communicators must not shut each other's question out.
        if (peer.next_comm != 0 && peer.next_comm != peer.asked_comm) {
            comm = peer.next_comm;
            number = peer.next_number;
        }
        peer.next_comm = 0;
        peer.asked_comm = comm;
        peer.asked_number = number;
        peer.silence_ns = peer.silent(now);
        peer.asked_ns = now;
        peer.waits = true;
        send_all(question(comm, number), peer);
        if (peer.silence_ns >= kStreamAfter && peer.stream == nullptr && now - peer.stream_tried_ns >= kStreamGap) {
            peer.stream_tried_ns = now;
            wanting_.push_back(uid);
            wake();
        }
    }

    [[nodiscard]] PeerReport report(uint64_t uid) const override {
        const int64_t now = now_ns();
        const std::lock_guard lock(mutex_);
        const auto found = peers_.find(uid);
        if (found == peers_.end())
            return {};
        const Peer &peer = found->second;
        return {peer.answers, peer.silent(now), refused(peer)};
    }

    void say_of(uint32_t comm, Say say) override {
        const std::lock_guard lock(mutex_);
        if (say)
            spoken_of_[comm].say = std::move(say);
        else
            spoken_of_.erase(comm);
    }

    [[nodiscard]] Said said(uint64_t uid, uint32_t comm) const override {
        const std::lock_guard lock(mutex_);
        const auto found = spoken_of_.find(comm);
        if (found == spoken_of_.end())
            return {};
        const auto peer = found->second.said.find(uid);
        return peer == found->second.said.end() ? Said() : peer->second;
    }

    [[nodiscard]] Asked asked(uint64_t uid) const override {
        const std::lock_guard lock(mutex_);
        const auto found = peers_.find(uid);
        if (found == peers_.end())
            return Asked::unanswered;
        const Peer &peer = found->second;
        return peer.by_datagram != 0 ? Asked::by_datagram : peer.by_stream != 0 ? Asked::by_stream : Asked::unanswered;
    }

    void declare_broken(uint32_t comm, const Status &why, std::span<const uint64_t> peers) override {
        const std::lock_guard lock(mutex_);
        broken_.add(comm, Status(why.fault(), why.words().substr(0, liveness::kWhyBytes)));
        Datagram notice;
        notice.kind = Kind::kNotice;
        put_broken(comm, notice);
        for (const uint64_t uid : peers)
            if (const auto found = peers_.find(uid); found != peers_.end())
                send_all(notice, found->second);
    }

    bool told_broken(uint32_t comm, Status &why) const override {
        if (!any_told_.load(std::memory_order_acquire))  // every wait asks
            return false;
        const std::lock_guard lock(mutex_);
        const Status *told = told_.find(comm);
        if (told != nullptr)
            why = *told;
        return told != nullptr;
    }

    int add_path(uint64_t uid, const std::string &device, const HostAddress &local,
                 const HostAddress &remote) override {
        const std::lock_guard lock(mutex_);
        const auto peer = peers_.find(uid);
        const auto door = door_at({local, 0});
        const bool one_family = liveness::is_ipv4({local, 0}) == liveness::is_ipv4({remote, 0});
        if (peer == peers_.end() || door == nullptr || !one_family)
            return -1;
        const std::vector<Address> &listens = peer->second.listens;
        const auto there = std::ranges::find(listens, remote, &Address::host);
        if (there == listens.end())
            return -1;
        Route route;
        route.uid = uid;
        route.device = if_nametoindex(device.c_str());
        route.door = door;
        route.remote = *there;
        routes_.push_back(route);
        return static_cast<int>(routes_.size()) - 1;
    }

    void ask_path(int path) override {
        const int64_t now = now_ns();
        const std::lock_guard lock(mutex_);
        Route &route = routes_[static_cast<size_t>(path)];
        const auto found = peers_.find(route.uid);
        if (found == peers_.end() || (route.report.unanswered != 0 && now - route.asked_ns < kPathQuestionGap))
            return;
        route.silence_ns = route.silent(now);
        route.asked_ns = now;
        ++route.report.unanswered;
        Datagram question;
        question.kind = Kind::kPathQuestion;
        question.path = static_cast<uint32_t>(path);
        send_by(question, found->second, *route.door, route.remote, route.device);
    }

    [[nodiscard]] PathReport path_report(int path) const override {
        const int64_t now = now_ns();
        const std::lock_guard lock(mutex_);
        const Route &route = routes_[static_cast<size_t>(path)];
        PathReport report = route.report;
        report.silent_ns = route.silent(now);
        return report;
    }

    void ask_process(uint64_t uid) override { ask(uid, 0); }

    [[nodiscard]] int64_t process_answered_ns(uint64_t uid) const override {
        const std::lock_guard lock(mutex_);
        const auto found = peers_.find(uid);
        return found == peers_.end() ? 0 : found->second.answered_ns;
    }

    void vouch(uint64_t uid) override {
        const std::lock_guard lock(mutex_);
        const auto found = peers_.find(uid);
        if (found == peers_.end())
            return;
        Peer &peer = found->second;
        ++peer.answers;
        peer.waits = false;
        peer.silence_ns = 0;
    }

    [[nodiscard]] int64_t process_silent_ns(uint64_t uid) const override { return report(uid).silent_ns; }

    [[nodiscard]] bool process_gone(uint64_t uid) const override { return report(uid).refused; }

    [[nodiscard]] bool knows(uint64_t uid) const override {
        const std::lock_guard lock(mutex_);
        return peers_.find(uid) != peers_.end();
    }

    void tell(uint64_t uid, int path, const void *word, size_t bytes) override {
        const std::lock_guard lock(mutex_);
        const auto found = peers_.find(uid);
        if (found == peers_.end() || bytes > kWordBytes)
            return;
        Datagram datagram;
        datagram.kind = Kind::kWord;
        datagram.why_bytes = static_cast<uint32_t>(bytes);
        std::memcpy(datagram.why.data(), word, bytes);
        if (path < 0) {
            send_all(datagram, found->second);
            return;
        }
        const Route &route = routes_[static_cast<size_t>(path)];
        send_by(datagram, found->second, *route.door, route.remote, route.device);
    }

    bool hear(uint64_t &uid, std::string &word) override {
        const std::lock_guard lock(mutex_);
        if (words_.empty())
            return false;
        uid = words_.front().first;
        word = std::move(words_.front().second);
        words_.pop_front();
        has_words_.store(!words_.empty(), std::memory_order_release);
        return true;
    }

    [[nodiscard]] bool has_words() const override { return has_words_.load(std::memory_order_acquire); }

    void on_word(std::function<void()> wake) override {
        const std::lock_guard lock(mutex_);
        on_word_ = std::move(wake);
    }

    void on_nudge(std::function<void()> f) override {
        const std::lock_guard lock(nudge_mutex_);
        on_nudge_ = std::move(f);
    }

    void nudge() override {
        nudged_.store(true, std::memory_order_release);
        wake();
    }

  private:
    static Datagram question(uint32_t comm, uint64_t number) {
        Datagram question;
        question.kind = Kind::kQuestion;
        question.comm = comm;
        question.number = number;
        question.stamp = stamp_of(now_ns());
        return question;
    }

    Status add_door(const Address &at) {
        std::unique_ptr<Door> door;
        FLX_TRY(Door::open(at, door));
        std::vector<Address> &told = place_.addresses;
        const bool loops_last = !told.empty() && liveness::is_loopback(told.back());
        told.insert(told.end() - (loops_last ? 1 : 0), door->address());
        doors_.push_back(std::move(door));
        return {};
    }

    void add_network() {
        for (const Address &address : liveness::network_addresses())
            if (doors_.size() < kMostDoors && door_at(address) == nullptr)
                static_cast<void>(add_door(address));  // one that cannot be bound is going, or not there yet
    }

    [[nodiscard]] const Door *door_at(const Address &local) const {
        const auto found = std::find_if(doors_.begin(), doors_.end(),
                                        [&](const auto &door) { return liveness::same_host(door->address(), local); });
        return found == doors_.end() ? nullptr : found->get();
    }

    void wake() const {
        const uint64_t one = 1;
        while (write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
        }
    }

    /// Null: the peer's key is none.
    Session *session(Peer &peer) const {
        if (peer.session == nullptr) {
            auto made = std::make_unique<Session>();
            if (!identity_.meet(peer.key, *made))
                return nullptr;
            peer.session = std::move(made);
        }
        return peer.session.get();
    }

    /// `datagram` for a peer with a session, in a place that lasts until the next is sealed. Each is sealed anew: one
    /// that came before is not heard.
    std::span<const std::byte> seal(const Datagram &datagram, Peer &peer) {
        return std::span(sealed_).first(liveness::encode(datagram, *peer.session, sealed_));
    }

    /// Sends a datagram to every address of the peer.
    void send_all(Datagram datagram, Peer &peer) {
        for (uint32_t index = 0; index < peer.paths.size() && session(peer) != nullptr; ++index) {
            Path &path = peer.paths[index];
            datagram.path = index;
            if (path.door == nullptr)
                path.door = door_towards(path.address);
            // A question that is not sent counts as unanswered, so any door is better than none.
            const Door *const door = path.door != nullptr ? path.door : any_door(path.address);
            if (door != nullptr && !door->send(seal(datagram, peer), path.address))
                path.door = nullptr;  // routes may have changed
        }
        if (peer.stream != nullptr)  // then there is a session
            peer.stream->send(seal(datagram, peer));
    }

    /// The door from which the system sends there. To look it up takes a descriptor, which a process may not have; null
    /// then, and where the system sends from an address that is newer than the doors.
    [[nodiscard]] const Door *door_towards(const Address &to) const {
        if (liveness::is_loopback(to))
            return door_at(to);
        const std::optional<Address> source = liveness::source_towards(to);
        return source ? door_at(*source) : nullptr;
    }
    [[nodiscard]] const Door *any_door(const Address &to) const {
        const auto fits = [&](const auto &door) {
            return liveness::is_ipv4(door->address()) == liveness::is_ipv4(to) &&
                   liveness::is_loopback(door->address()) == liveness::is_loopback(to);
        };
        const auto found = std::find_if(doors_.begin(), doors_.end(), fits);
        return found == doors_.end() ? nullptr : found->get();
    }

    void send_by(const Datagram &datagram, Peer &peer, const Door &door, const Address &to, uint32_t device) {
        if (session(peer) != nullptr)
            door.send_by(seal(datagram, peer), to, device);
    }

    /// Back the way that it came.
    void reply(const Datagram &datagram, Peer &peer, const Origin &origin) {
        if (origin.stream != nullptr)
            origin.stream->send(seal(datagram, peer));
        else
            origin.door->send(seal(datagram, peer), origin.came.from);
    }

    using Proof = std::tuple<uint64_t, std::array<uint8_t, 16>, bool>;
    [[nodiscard]] bool is_proven(const Peer &peer, const Path &path, bool by_stream) const {
        return proven_.find(Proof(peer.host, path.address.host, by_stream)) != proven_.end();
    }

    /// A closed port counts where it is surely the peer's: at an address where its host answered in the same way, or on
    /// the loopback interface that both share; or else when every address says so to datagrams and to connections (a
    /// firewall's word is the same).
    [[nodiscard]] bool refused(const Peer &peer) const {
        const auto certain = [&](const Path &path) {
            const bool loops = liveness::is_loopback(path.address);
            return (path.refused && (loops || is_proven(peer, path, false))) ||
                   (path.refused_stream && (loops || is_proven(peer, path, true)));
        };
        return std::any_of(peer.paths.begin(), peer.paths.end(), certain) ||
               std::all_of(peer.paths.begin(), peer.paths.end(),
                           [](const Path &path) { return path.refused && path.refused_stream; });
    }

    /// Writes what this process declared of `comm`, if anything, into `datagram`.
    void put_broken(uint32_t comm, Datagram &datagram) const {
        const Status *why = broken_.find(comm);
        if (why == nullptr)
            return;
        datagram.comm = comm;
        const std::string words = why->words();
        datagram.fault = why->number();
        datagram.why_bytes = static_cast<uint32_t>(words.size());
        std::copy(words.begin(), words.end(), datagram.why.begin());
    }

    void take_broken(const Datagram &datagram) {
        if (datagram.comm == 0 || !is_fault(datagram.fault))
            return;
        told_.add(datagram.comm,
                  Status(fault_of(datagram.fault), std::string_view(datagram.why.data(), datagram.why_bytes)));
        any_told_.store(true, std::memory_order_release);
    }

    /// The thread: sleeps until a message, an error of one, or the end.
    void respond() {
        pthread_setname_np(pthread_self(), "flx-liveness");
        std::vector<pollfd> events;
        std::vector<const Door *> doors;
        std::vector<Stream *> streams;
        while (!ending_.load(std::memory_order_acquire)) {
            const int patience_ms = list_events(events, doors, streams);
            if (poll(events.data(), events.size(), patience_ms) < 0)
                continue;
            uint64_t count = 0;
            if (events[0].revents != 0 && read(wake_.get(), &count, sizeof count) < 0 && errno != EAGAIN)
                continue;
            if (nudged_.exchange(false, std::memory_order_acq_rel)) {
                const std::lock_guard lock(nudge_mutex_);
                if (on_nudge_)
                    on_nudge_();
            }
            size_t next = 1;
            for (const Door *door : doors) {
                if (events[next].revents & POLLERR)
                    read_errors(*door);
                if (events[next++].revents != 0)
                    read_datagrams(*door);
                if (events[next++].revents != 0)
                    take_connections(*door);
            }
            for (Stream *stream : streams)
                move(*stream, events[next++].revents);
            take_kept();
            const std::lock_guard lock(mutex_);
            begin_streams();
            end_streams();
        }
    }

    /// What to poll: the wake-up, two of each door, the streams. How long, in ms.
    int list_events(std::vector<pollfd> &events, std::vector<const Door *> &doors, std::vector<Stream *> &streams) {
        constexpr int kUnprovenPatienceMs = 250;
        constexpr int kFullPatienceMs = 100;
        const bool full = full_since_ns_ != 0 && now_ns() - full_since_ns_ < kFullPatienceMs * 1'000'000LL;
        events.assign(1, {wake_.get(), POLLIN, 0});
        doors.clear();
        streams.clear();
        const std::lock_guard lock(mutex_);
        for (const auto &door : doors_) {
            doors.push_back(door.get());
            events.push_back({door->datagrams(), POLLIN, 0});
            events.push_back({full ? -1 : door->connections(), POLLIN, 0});
        }
        int patience_ms = full ? kFullPatienceMs : -1;
        for (const auto &stream : streams_) {
            streams.push_back(stream.get());
            const bool connecting = stream->state() == Stream::State::connecting;
            const int wanted = (connecting ? 0 : POLLIN) | (stream->wants_room() ? POLLOUT : 0);
            events.push_back({stream->descriptor(), static_cast<short>(wanted), 0});
            if (!stream->proven && !full)
                patience_ms = kUnprovenPatienceMs;
        }
        return kept_.empty() ? patience_ms : 0;
    }

    void read_datagrams(const Door &door) {
        std::array<std::byte, liveness::kMostBytes + 1> bytes;  // one more, to tell what is too long
        Origin origin{&door, {}, nullptr};
        for (int i = 0; i < kTurn; ++i) {
            const ssize_t received = door.receive(bytes, origin.came);
            if (received == -1)
                return;
            const std::lock_guard lock(mutex_);
            if (received >= 0)
                take(std::span(bytes).first(static_cast<size_t>(received)), origin);
        }
    }

    /// Any message, of whomever, with the lock held. Nothing is kept of one that no peer sealed. False: it is such a
    /// one.
    bool take(std::span<const std::byte> sealed, const Origin &origin) {
        const std::optional<uint64_t> name = liveness::sender_of(sealed);
        if (!name)
            return false;
        const auto uid = uids_.find(*name);
        if (uid == uids_.end())
            return false;
        Peer &peer = peers_.at(uid->second);
        Session *const keys = session(peer);
        const std::optional<Datagram> datagram = keys == nullptr ? std::nullopt : liveness::decode(sealed, *keys);
        if (!datagram)
            return false;
        if (origin.stream != nullptr)
            prove(*origin.stream, uid->second, peer);
        if (datagram->kind == Kind::kPathQuestion)
            answer_path(*datagram, peer, origin);
        else if (datagram->kind == Kind::kPathAnswer)
            take_path_answer(*datagram, uid->second);
        else if (origin.stream == nullptr)
            came_.push_back({*datagram, uid->second, origin});
        else
            heed(*datagram, uid->second, origin);
        return true;
    }

    /// What a process asks and says by datagrams is heeded once all sockets were read again, after what came over
    /// paths before. This thread may wait for a core at any point. So a path that is silent while the process answers
    /// what it was asked later (Paths::process_answered_ns) is not one whose question or answer lies in a socket.
    void take_kept() {
        for (const Message &message : kept_) {
            const std::lock_guard lock(mutex_);
            heed(message.datagram, message.uid, message.origin);
        }
        kept_.clear();
        kept_.swap(came_);
    }

    void heed(const Datagram &datagram, uint64_t uid, const Origin &origin) {
        Peer &peer = peers_.at(uid);
        if (datagram.kind == Kind::kQuestion)
            answer(datagram, peer, origin);
        else if (datagram.kind == Kind::kWord)
            keep_word(datagram, uid);
        else
            take_word(datagram, uid, peer, origin);
    }

    /// Back the way that it came. By IPv4, what came from this host itself was seen on the loopback device, whoever
    /// sent it.
    void answer_path(const Datagram &question, Peer &peer, const Origin &origin) {
        if (origin.door == nullptr)
            return;
        Datagram answer;
        answer.kind = Kind::kPathAnswer;
        answer.path = question.path;
        const bool own = liveness::is_loopback(origin.door->address()) || origin.came.device == 1;
        send_by(answer, peer, *origin.door, origin.came.from, own ? 0 : origin.came.device);
    }

    void take_path_answer(const Datagram &answer, uint64_t uid) {
        if (answer.path >= routes_.size() || routes_[answer.path].uid != uid)
            return;
        Route &route = routes_[answer.path];
        ++route.report.answers;
        route.report.unanswered = 0;
        route.report.answered_ns = now_ns();
        route.silence_ns = 0;
    }

    void keep_word(const Datagram &word, uint64_t uid) {
        if (words_.size() == kWordsKept)
            return;
        words_.emplace_back(uid, std::string(word.why.data(), word.why_bytes));
        has_words_.store(true, std::memory_order_release);
        if (on_word_)
            on_word_();
    }

    /// Answers to where the question came from, so that the answer takes a way that works.
    void answer(const Datagram &question, Peer &peer, const Origin &origin) {
        Datagram answer;
        answer.kind = Kind::kAnswer;
        answer.path = question.path;
        answer.stamp = question.stamp;
        if (question.comm != 0) {
            put_broken(question.comm, answer);
            if (answer.comm == 0)
                put_said(question, answer);
        }
        reply(answer, peer, origin);
    }

    void put_said(const Datagram &question, Datagram &answer) const {
        const auto found = spoken_of_.find(question.comm);
        if (found == spoken_of_.end())
            return;
        answer.comm = question.comm;
        static_assert(kSaidBytes == liveness::kTextBytes);
        const std::span bytes = std::as_writable_bytes(std::span(answer.why));
        answer.why_bytes = static_cast<uint32_t>(found->second.say(question.number, bytes));
    }

    /// An answer or a notice.
    void take_word(const Datagram &answer, uint64_t uid, Peer &peer, const Origin &origin) {
        take_broken(answer);
        if (answer.kind != Kind::kAnswer || (origin.stream == nullptr && answer.path >= peer.paths.size()))
            return;
        ++peer.answers;
        ++(origin.stream != nullptr ? peer.by_stream : peer.by_datagram);
        if (origin.stream == nullptr) {
            peer.answered_ns = std::max(peer.answered_ns, time_of(answer.stamp, now_ns()));
            proven_.emplace(peer.host, peer.paths[answer.path].address.host, false);
        }
        peer.waits = false;
        peer.silence_ns = 0;
        if (const auto of = spoken_of_.find(answer.comm); answer.fault == 0 && of != spoken_of_.end()) {
            Said &said = of->second.said[uid];
            said.bytes.assign(answer.why.data(), answer.why_bytes);
            ++said.times;
        }
        for (Path &path : peer.paths)
            path.refused = path.refused_stream = false;
    }

    /// Takes ICMP errors from the socket's queue: which peer's port is closed.
    void read_errors(const Door &door) {
        Address to;
        while (door.next_refused(to)) {
            const std::lock_guard lock(mutex_);
            for (auto &[uid, peer] : peers_)
                for (Path &path : peer.paths)
                    path.refused |= path.address == to;
        }
    }

    void take_connections(const Door &door) {
        for (int i = 0; i < kTurn; ++i) {
            errno = 0;
            auto stream = std::make_unique<Stream>(door.connections());
            if (stream->ended()) {
                // It stays in the queue, which would wake this thread at once again, for ever.
                if (errno == EMFILE || errno == ENFILE)
                    full_since_ns_ = now_ns();
                return;
            }
            stream->since_ns = stream->used_ns = now_ns();
            const std::lock_guard lock(mutex_);
            const auto stranger = [](const auto &each) { return each->peer == 0 && !each->ended(); };
            if (static_cast<size_t>(std::count_if(streams_.begin(), streams_.end(), stranger)) >= kMostUnproven)
                drop(std::find_if(streams_.begin(), streams_.end(), stranger)->get());
            streams_.push_back(std::move(stream));
        }
    }

    void move(Stream &stream, short events) {
        const std::lock_guard lock(mutex_);
        if (events == 0 || stream.ended())
            return;
        if (stream.state() == Stream::State::connecting) {
            stream.settle();
            Peer &peer = peers_.at(stream.peer);
            if (stream.state() == Stream::State::open)
                stream.send(seal(question(peer.asked_comm, peer.asked_number), peer));
            for (Path &path : peer.paths)
                path.refused_stream |= stream.refused() && path.address == stream.to();
            return;
        }
        if (events & POLLOUT)
            stream.flush();
        if ((events & ~POLLOUT) == 0 || stream.ended())
            return;
        Origin origin;
        origin.stream = &stream;
        stream.fill();
        for (std::span<const std::byte> sealed = stream.next(); !sealed.empty(); sealed = stream.next())
            if (!take(sealed, origin))
                stream.end();
    }

    /// The peer has said something on it.
    void prove(Stream &stream, uint64_t uid, Peer &peer) {
        const bool made_here = stream.to().port != 0;
        if (made_here && !stream.proven)
            proven_.emplace(peer.host, stream.to().host, true);
        stream.proven = true;
        stream.peer = uid;
        stream.used_ns = now_ns();
        if (peer.stream == nullptr)
            peer.stream = &stream;
        else if (peer.stream != &stream && made_here)
            stream.end();  // of those that were tried at once the first serves
    }

    /// Connects to all addresses of those whom datagrams do not reach.
    void begin_streams() {
        for (const uint64_t uid : std::exchange(wanting_, {})) {
            Peer &peer = peers_.at(uid);
            if (peer.stream != nullptr || session(peer) == nullptr)
                continue;
            for (Path &path : peer.paths) {
                auto stream = std::make_unique<Stream>(path.address, uid);
                stream->since_ns = stream->used_ns = now_ns();
                path.refused_stream |= stream->refused();
                if (stream->state() == Stream::State::open)
                    stream->send(seal(question(peer.asked_comm, peer.asked_number), peer));
                if (!stream->ended())
                    streams_.push_back(std::move(stream));
            }
        }
    }

    /// Nothing refers to it any more; it goes with end_streams().
    void drop(Stream *stream) {
        stream->end();
        if (const auto found = peers_.find(stream->peer); found != peers_.end() && found->second.stream == stream)
            found->second.stream = nullptr;
    }

    void end_streams() {
        const int64_t now = now_ns();
        size_t living = 0;
        Stream *idle = nullptr;
        for (const auto &stream : streams_) {
            if (!stream->proven && now - stream->since_ns > kUnprovenNs)
                stream->end();
            living += stream->ended() ? 0 : 1;
            if (!stream->ended() && (idle == nullptr || stream->used_ns < idle->used_ns))
                idle = stream.get();
        }
        if (living > kMostStreams)
            idle->end();
        for (const auto &stream : streams_)
            if (stream->ended())
                drop(stream.get());
        std::erase_if(streams_, [](const auto &stream) { return stream->ended(); });
    }

    const uint64_t uid_;
    const pid_t process_;
    liveness::Identity identity_;
    OwnDescriptor wake_;
    std::atomic<bool> nudged_{false};
    std::mutex nudge_mutex_;  ///< while it runs
    std::function<void()> on_nudge_;
    std::atomic<bool> ending_{false};
    int64_t full_since_ns_ = 0;  ///< there was no descriptor for a connection; the thread's alone
    struct Message {
        Datagram datagram;
        uint64_t uid = 0;
        Origin origin;
    };
    std::vector<Message> came_;  ///< since the sockets were read last; the thread's alone
    std::vector<Message> kept_;  ///< before that

    mutable std::mutex mutex_;  // of what follows
    Place place_;
    std::vector<std::unique_ptr<Door>> doors_;      // the thread polls them; none goes
    std::vector<std::unique_ptr<Stream>> streams_;  // the thread alone adds and removes
    std::array<std::byte, liveness::kMostBytes> sealed_;
    std::unordered_map<uint64_t, Peer> peers_;
    std::vector<uint64_t> wanting_;                // peers to connect to
    std::unordered_map<uint64_t, uint64_t> uids_;  // by the name in a seal
    std::set<Proof> proven_;  // addresses of hosts at which somebody answered, and whether by stream
    BrokenList broken_;       // that this process declared
    BrokenList told_;         // that peers declared
    std::atomic<bool> any_told_{false};
    struct SpokenOf {
        Say say;
        std::unordered_map<uint64_t, Said> said;  // by peer
    };
    std::unordered_map<uint32_t, SpokenOf> spoken_of_;  // by communicator
    std::vector<Route> routes_;
    std::deque<std::pair<uint64_t, std::string>> words_;
    std::atomic<bool> has_words_{false};
    std::function<void()> on_word_;

    std::thread thread_;
};

}  // namespace

Status Liveness::start(uint64_t uid, std::unique_ptr<Liveness> &result) {
    auto liveness = std::make_unique<Responder>(uid);
    FLX_TRY(liveness->open());
    result = std::move(liveness);
    return {};
}

}  // namespace flx

#include "liveness.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <unordered_map>
#include <vector>

#include "liveness_wire.h"
#include "own_thread.h"

namespace flx {
namespace {

using liveness::Datagram;
using liveness::Kind;
using liveness::Place;

constexpr int64_t kQuestionGap = 50'000'000;  // ns between two questions to a peer
/// The most that one gap between questions adds to a peer's silence. A process that did not ask, or that was stopped
/// itself, did not listen either.
constexpr int64_t kSilencePerQuestion = 1'000'000'000;
/// The same of a path, which is asked more often.
constexpr int64_t kPathSilencePerQuestion = 50'000'000;
constexpr size_t kBrokenKept = 1024;
/// Words that nobody took: a peer repeats what matters.
constexpr size_t kWordsKept = 1024;

int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

/// Closes when it goes.
class Descriptor {
  public:
    explicit Descriptor(int fd = -1) : fd_(fd) {}
    Descriptor(const Descriptor &) = delete;
    Descriptor &operator=(const Descriptor &) = delete;
    ~Descriptor() {
        if (fd_ >= 0)
            close(fd_);
    }
    [[nodiscard]] int get() const { return fd_; }

  private:
    int fd_;
};

struct Path {
    uint32_t address;      // IPv4, network byte order
    bool proven = false;   // the peer answered a question that was sent here
    bool refused = false;  // and now its port is closed there
};

struct Peer {
    uint16_t port = 0;
    uint64_t secret = 0;
    std::vector<Path> paths;
    uint64_t answers = 0;
    int64_t answered_ns = 0;   // the last, path answers included
    bool waits = false;        // a question was sent since the last answer
    int64_t asked_ns = 0;      // when the last question was sent; 0: never
    int64_t silence_ns = 0;    // of the questions before the last one
    uint32_t asked_comm = 0;   // of the last question
    uint32_t next_comm = 0;    // of a question that the rate limit held back, if about another communicator,
    uint64_t next_number = 0;  // and its number

    [[nodiscard]] int64_t silent(int64_t now) const {
        return waits ? silence_ns + std::min(now - asked_ns, kSilencePerQuestion) : 0;
    }
    /// A closed port counts where it is surely the peer's: an address at which it answered, or the loopback interface
    /// that both share; or else when every address says so.
    [[nodiscard]] bool refused() const {
        const auto certain = [](const Path &path) {
            return path.refused && (path.proven || liveness::is_loopback(path.address));
        };
        return std::any_of(paths.begin(), paths.end(), certain) ||
               std::all_of(paths.begin(), paths.end(), [](const Path &path) { return path.refused; });
    }
};

/// From one device of this host to one address of a peer.
struct Route {
    uint64_t uid = 0;
    uint32_t device = 0;  // index; 0: as the system routes
    uint32_t local = 0;
    uint32_t remote = 0;
    PathReport report;
    int64_t asked_ns = 0;  // the last question
    int64_t silence_ns = 0;

    [[nodiscard]] int64_t silent(int64_t now) const {
        return report.unanswered != 0 ? silence_ns + std::min(now - asked_ns, kPathSilencePerQuestion) : 0;
    }
};

/// Communicators that are broken, the latest kBrokenKept. The first word on each counts.
class BrokenList {
  public:
    void add(uint32_t comm, flx_status_t code, std::string why) {
        if (find(comm) != nullptr)
            return;
        if (list_.size() == kBrokenKept)
            list_.pop_front();
        list_.emplace_back(comm, Status(code, std::move(why)));
    }
    [[nodiscard]] const Status *find(uint32_t comm) const {
        const auto found = std::find_if(list_.begin(), list_.end(), [&](const auto &b) { return b.first == comm; });
        return found == list_.end() ? nullptr : &found->second;
    }

  private:
    std::deque<std::pair<uint32_t, Status>> list_;
};

class UdpLiveness final : public Liveness {
  public:
    UdpLiveness(uint64_t secret, uint64_t uid, int socket, int wake, uint16_t port)
        : secret_(secret),
          uid_(uid),
          process_(getpid()),
          place_(liveness::local_place(port, secret)),
          socket_(socket),
          wake_(wake) {}

    ~UdpLiveness() override {
        if (!thread_.joinable())
            return;
        if (getpid() != process_) {  // a forked child, which has a copy of this object but not the thread
            thread_.detach();
            return;
        }
        const uint64_t one = 1;
        while (write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
        }
        thread_.join();
    }

    Status start_thread() {
        try {
            thread_ = own_thread([this] { respond(); });
        } catch (const std::system_error &error) {
            return fail(FLX_ERR_SYSTEM, "cannot start the liveness thread: {}", error.what());
        }
        return {};
    }

    [[nodiscard]] std::string address() const override { return liveness::to_text(place_); }

    Status add_peer(uint64_t uid, const std::string &address) override {
        const std::optional<Place> place = liveness::parse_place(address);
        if (!place)
            return fail(FLX_ERR_ARGUMENT, "liveness address \"{}\" is not \"host port secret address…\"", address);
        Peer peer;
        peer.port = place->port;
        peer.secret = place->secret;
        for (const uint32_t usable : liveness::usable_addresses(place_, *place))
            peer.paths.push_back(Path{usable});
        if (peer.paths.empty()) {
            return fail(FLX_ERR_SYSTEM,
                        "no IPv4 address of a peer can be asked whether it lives: it has {}, this process {}",
                        liveness::addresses_of(*place), liveness::addresses_of(place_));
        }
        const std::lock_guard lock(mutex_);
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
        peer.silence_ns = peer.silent(now);
        peer.asked_ns = now;
        peer.waits = true;
        Datagram question;
        question.secret = peer.secret;
        question.reply = secret_;
        question.from = uid_;
        question.to = uid;
        question.kind = Kind::kQuestion;
        question.comm = comm;
        question.number = number;
        send_all(question, peer);
    }

    [[nodiscard]] PeerReport report(uint64_t uid) const override {
        const int64_t now = now_ns();
        const std::lock_guard lock(mutex_);
        const auto found = peers_.find(uid);
        if (found == peers_.end())
            return {};
        const Peer &peer = found->second;
        return {peer.answers, peer.silent(now), peer.refused()};
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

    void declare_broken(uint32_t comm, const Status &why, std::span<const uint64_t> peers) override {
        const std::lock_guard lock(mutex_);
        broken_.add(comm, why.code(), why.sentence().substr(0, liveness::kWhyBytes));
        Datagram notice;
        notice.from = uid_;
        notice.kind = Kind::kNotice;
        put_broken(comm, notice);
        for (const uint64_t uid : peers) {
            const auto found = peers_.find(uid);
            if (found == peers_.end())
                continue;
            notice.secret = found->second.secret;
            notice.to = uid;
            send_all(notice, found->second);
        }
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

    int add_path(uint64_t uid, const std::string &device, uint32_t local, uint32_t remote) override {
        const std::lock_guard lock(mutex_);
        Route route;
        route.uid = uid;
        route.device = if_nametoindex(device.c_str());
        route.local = local;
        route.remote = remote;
        routes_.push_back(route);
        return static_cast<int>(routes_.size()) - 1;
    }

    void ask_path(int path) override {
        const int64_t now = now_ns();
        const std::lock_guard lock(mutex_);
        Route &route = routes_[static_cast<size_t>(path)];
        const auto found = peers_.find(route.uid);
        if (found == peers_.end())
            return;
        route.silence_ns = route.silent(now);
        route.asked_ns = now;
        ++route.report.unanswered;
        Datagram question;
        question.secret = found->second.secret;
        question.reply = secret_;
        question.from = uid_;
        question.to = route.uid;
        question.kind = Kind::kPathQuestion;
        question.path = static_cast<uint32_t>(path);
        send_from(question, to_peer(found->second, route.remote), route.device, route.local);
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

    void tell(uint64_t uid, int path, const void *word, size_t bytes) override {
        const std::lock_guard lock(mutex_);
        const auto found = peers_.find(uid);
        if (found == peers_.end() || bytes > kWordBytes)
            return;
        Datagram datagram;
        datagram.secret = found->second.secret;
        datagram.from = uid_;
        datagram.to = uid;
        datagram.kind = Kind::kWord;
        datagram.why_bytes = static_cast<uint32_t>(bytes);
        std::memcpy(datagram.why.data(), word, bytes);
        if (path < 0) {
            send_all(datagram, found->second);
            return;
        }
        const Route &route = routes_[static_cast<size_t>(path)];
        send_from(datagram, to_peer(found->second, route.remote), route.device, route.local);
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

  private:
    static sockaddr_in to_peer(const Peer &peer, uint32_t address) {
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = htons(peer.port);
        to.sin_addr.s_addr = address;
        return to;
    }

    /// To every address of the peer.
    void send_all(Datagram &datagram, const Peer &peer) const {
        for (uint32_t path = 0; path < peer.paths.size(); ++path) {
            datagram.path = path;
            send(datagram, to_peer(peer, peer.paths[path].address));
        }
    }

    /// Writes what this process declared of `comm`, if anything, into `datagram`.
    void put_broken(uint32_t comm, Datagram &datagram) const {
        const Status *why = broken_.find(comm);
        if (why == nullptr)
            return;
        datagram.comm = comm;
        datagram.code = why->code();
        datagram.why_bytes = static_cast<uint32_t>(why->sentence().size());
        std::copy(why->sentence().begin(), why->sentence().end(), datagram.why.begin());
    }

    void take_broken(const Datagram &datagram) {
        if (datagram.comm == 0 || datagram.code <= FLX_SUCCESS || datagram.code > FLX_ERR_SYSTEM)
            return;
        told_.add(datagram.comm, static_cast<flx_status_t>(datagram.code),
                  std::string(datagram.why.data(), datagram.why_bytes));
        any_told_.store(true, std::memory_order_release);
    }

    /// Never blocks; a datagram that the system refuses is lost, as any may be.
    void send(const Datagram &datagram, const sockaddr_in &to) const {
        // An error that an earlier datagram met is reported here, and this one is not sent.
        for (int attempt = 0; attempt < 4; ++attempt) {
            if (sendto(socket_.get(), &datagram, liveness::kHeaderBytes + datagram.why_bytes,
                       MSG_DONTWAIT | MSG_NOSIGNAL, reinterpret_cast<const sockaddr *>(&to), sizeof(to)) >= 0 ||
                errno == EAGAIN)
                return;
        }
    }

    /// By one device of this host and from its address. Never blocks; a device that is down is a datagram lost.
    void send_from(const Datagram &datagram, const sockaddr_in &to, uint32_t device, uint32_t local) const {
        iovec vector{const_cast<Datagram *>(&datagram), liveness::kHeaderBytes + datagram.why_bytes};
        alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(in_pktinfo))> control{};
        msghdr message{};
        message.msg_name = const_cast<sockaddr_in *>(&to);
        message.msg_namelen = sizeof(to);
        message.msg_iov = &vector;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = IPPROTO_IP;
        header->cmsg_type = IP_PKTINFO;
        header->cmsg_len = CMSG_LEN(sizeof(in_pktinfo));
        in_pktinfo info{};
        info.ipi_ifindex = static_cast<int>(device);
        info.ipi_spec_dst.s_addr = local;
        std::memcpy(CMSG_DATA(header), &info, sizeof(info));
        for (int attempt = 0; attempt < 4; ++attempt)
            if (sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 || errno == EAGAIN)
                return;
    }

    /// The thread: sleeps until a datagram, an error of one, or the end.
    void respond() {
        pthread_setname_np(pthread_self(), "flx-liveness");
        for (;;) {
            pollfd events[2] = {{socket_.get(), POLLIN, 0}, {wake_.get(), POLLIN, 0}};
            if (poll(events, 2, -1) < 0)
                continue;
            if (events[1].revents != 0)
                return;
            if (events[0].revents & POLLERR)
                read_errors();
            read_datagrams();
        }
    }

    void read_datagrams() {
        std::array<std::byte, sizeof(Datagram) + 1> bytes;  // one more, to tell what is too long
        for (;;) {
            sockaddr_in from{};
            in_pktinfo came{};
            const ssize_t received = receive(bytes, from, came);
            if (received < 0) {
                if (errno == EAGAIN || errno == EWOULDBLOCK)
                    return;
                continue;  // an error that an earlier datagram met; reading clears it
            }
            const auto datagram = liveness::parse(std::span(bytes).first(static_cast<size_t>(received)), secret_);
            if (!datagram || datagram->to != uid_)
                continue;
            switch (datagram->kind) {
                case Kind::kQuestion:
                    answer(*datagram, from);
                    break;
                case Kind::kPathQuestion:
                    answer_path(*datagram, from, came);
                    break;
                case Kind::kPathAnswer:
                    take_path_answer(*datagram);
                    break;
                case Kind::kWord:
                    keep_word(*datagram);
                    break;
                default:
                    take_word(*datagram);
                    break;
            }
        }
    }

    /// One datagram, who sent it, and by which device and to which address it came.
    ssize_t receive(std::span<std::byte> bytes, sockaddr_in &from, in_pktinfo &came) const {
        iovec vector{bytes.data(), bytes.size()};
        alignas(cmsghdr) std::array<std::byte, 256> control;
        msghdr message{};
        message.msg_name = &from;
        message.msg_namelen = sizeof(from);
        message.msg_iov = &vector;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        const ssize_t received = recvmsg(socket_.get(), &message, MSG_DONTWAIT);
        if (received < 0)
            return received;
        for (cmsghdr *header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header))
            if (header->cmsg_level == IPPROTO_IP && header->cmsg_type == IP_PKTINFO)
                std::memcpy(&came, CMSG_DATA(header), sizeof(came));
        return received;
    }

    /// Back the way that it came. What came from this host itself was seen on the loopback device, whoever sent it.
    void answer_path(const Datagram &question, const sockaddr_in &to, const in_pktinfo &came) const {
        Datagram answer;
        answer.secret = question.reply;
        answer.from = uid_;
        answer.to = question.from;
        answer.kind = Kind::kPathAnswer;
        answer.path = question.path;
        const bool own = liveness::is_loopback(came.ipi_addr.s_addr) || came.ipi_ifindex == 1;
        send_from(answer, to, own ? 0 : static_cast<uint32_t>(came.ipi_ifindex), came.ipi_addr.s_addr);
    }

    void take_path_answer(const Datagram &answer) {
        const int64_t now = now_ns();
        const std::lock_guard lock(mutex_);
        if (answer.path >= routes_.size() || routes_[answer.path].uid != answer.from)
            return;
        Route &route = routes_[answer.path];
        ++route.report.answers;
        route.report.unanswered = 0;
        route.report.answered_ns = now;
        route.silence_ns = 0;
        if (const auto found = peers_.find(answer.from); found != peers_.end())
            found->second.answered_ns = now;
    }

    void keep_word(const Datagram &word) {
        const std::lock_guard lock(mutex_);
        if (peers_.find(word.from) == peers_.end() || words_.size() == kWordsKept)
            return;
        words_.emplace_back(word.from, std::string(word.why.data(), word.why_bytes));
        has_words_.store(true, std::memory_order_release);
        if (on_word_)
            on_word_();
    }

    /// To where the question came from, so that the answer takes a way that works.
    void answer(const Datagram &question, const sockaddr_in &to) {
        Datagram answer;
        answer.secret = question.reply;
        answer.from = uid_;
        answer.to = question.from;
        answer.kind = Kind::kAnswer;
        answer.path = question.path;
        if (question.comm != 0) {
            const std::lock_guard lock(mutex_);
            put_broken(question.comm, answer);
            if (answer.comm == 0)
                put_said(question, answer);
        }
        send(answer, to);
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
    void take_word(const Datagram &answer) {
        const std::lock_guard lock(mutex_);
        const auto found = peers_.find(answer.from);
        if (found == peers_.end())
            return;
        take_broken(answer);
        Peer &peer = found->second;
        if (answer.kind != Kind::kAnswer || answer.path >= peer.paths.size())
            return;
        ++peer.answers;
        peer.answered_ns = now_ns();
        peer.waits = false;
        peer.silence_ns = 0;
        if (const auto of = spoken_of_.find(answer.comm); answer.code == FLX_SUCCESS && of != spoken_of_.end()) {
            Said &said = of->second.said[answer.from];
            said.bytes.assign(answer.why.data(), answer.why_bytes);
            ++said.times;
        }
        for (Path &path : peer.paths)
            path.refused = false;
        peer.paths[answer.path].proven = true;
    }

    /// Takes ICMP errors from the socket's queue: which peer's port is closed.
    void read_errors() {
        for (;;) {
            std::array<std::byte, 8> payload;
            alignas(cmsghdr) std::array<std::byte, 512> control;
            sockaddr_in to{};  // where the datagram went
            iovec vector{payload.data(), payload.size()};
            msghdr message{};
            message.msg_name = &to;
            message.msg_namelen = sizeof(to);
            message.msg_iov = &vector;
            message.msg_iovlen = 1;
            message.msg_control = control.data();
            message.msg_controllen = control.size();
            if (recvmsg(socket_.get(), &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
                return;
            for (cmsghdr *header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
                if (header->cmsg_level != IPPROTO_IP || header->cmsg_type != IP_RECVERR)
                    continue;
                sock_extended_err error;
                std::memcpy(&error, CMSG_DATA(header), sizeof(error));
                if (error.ee_origin == SO_EE_ORIGIN_ICMP && error.ee_errno == ECONNREFUSED)
                    note_refusal(to);
            }
        }
    }

    void note_refusal(const sockaddr_in &to) {
        const std::lock_guard lock(mutex_);
        for (auto &[uid, peer] : peers_) {
            if (htons(peer.port) != to.sin_port)
                continue;
            for (Path &path : peer.paths)
                path.refused |= path.address == to.sin_addr.s_addr;
        }
    }

    const uint64_t secret_;
    const uint64_t uid_;
    const pid_t process_;
    const Place place_;
    const Descriptor socket_;
    const Descriptor wake_;

    mutable std::mutex mutex_;
    std::unordered_map<uint64_t, Peer> peers_;
    BrokenList broken_;  // that this process declared
    BrokenList told_;    // that peers declared
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

Status Liveness::start(uint64_t secret, uint64_t uid, std::unique_ptr<Liveness> &result) {
    const int udp = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (udp < 0)
        return fail(FLX_ERR_SYSTEM, "cannot open a UDP socket for liveness: {}", std::strerror(errno));
    const int on = 1;
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_ANY);
    socklen_t length = sizeof(any);
    if (setsockopt(udp, IPPROTO_IP, IP_RECVERR, &on, sizeof(on)) != 0 ||
        setsockopt(udp, IPPROTO_IP, IP_PKTINFO, &on, sizeof(on)) != 0 ||
        bind(udp, reinterpret_cast<sockaddr *>(&any), length) != 0 ||
        getsockname(udp, reinterpret_cast<sockaddr *>(&any), &length) != 0) {
        const int error = errno;
        close(udp);
        return fail(FLX_ERR_SYSTEM, "cannot bind a UDP port for liveness: {}", std::strerror(error));
    }
    const int wake = eventfd(0, EFD_CLOEXEC);
    if (wake < 0) {
        const int error = errno;
        close(udp);
        return fail(FLX_ERR_SYSTEM, "cannot open an event descriptor for liveness: {}", std::strerror(error));
    }
    auto liveness = std::make_unique<UdpLiveness>(secret, uid, udp, wake, ntohs(any.sin_port));
    FLX_TRY(liveness->start_thread());
    result = std::move(liveness);
    return {};
}

}  // namespace flx

#include "runtime/process/liveness.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>
#include <numeric>
#include <random>
#include <sstream>
#include <thread>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/process/liveness_wire.h"

namespace flx {

static std::atomic<bool> drop_datagrams{false};
static bool sends_datagrams(int fd) {
    int type = 0;
    socklen_t length = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_DGRAM;
}

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

std::unique_ptr<Liveness> start(uint64_t uid) {
    std::unique_ptr<Liveness> result;
    const Status status = Liveness::start(uid, result);
    EXPECT_TRUE(status.ok()) << status.sentence();
    return result;
}

/// Each learns of the other, as ranks do that meet.
void introduce(Liveness &a, uint64_t uid_of_a, Liveness &b, uint64_t uid_of_b) {
    EXPECT_TRUE(a.add_peer(uid_of_b, b.address()).ok());
    EXPECT_TRUE(b.add_peer(uid_of_a, a.address()).ok());
}

liveness::Place place_of(const Liveness &liveness) {
    const auto place = liveness::parse_place(liveness.address());
    EXPECT_TRUE(place.has_value() && !place->addresses.empty());
    return place.value_or(liveness::Place{0, {}, {liveness::Address{}}});
}

/// Asks about `comm` until `done`, as a waiting loop does.
bool ask_until(Liveness &self, uint64_t uid, uint32_t comm, const std::function<bool(const PeerReport &)> &done,
               milliseconds limit = milliseconds(5000)) {
    const auto end = steady_clock::now() + limit;
    while (steady_clock::now() < end) {
        self.ask(uid, comm);
        if (done(self.report(uid)))
            return true;
        std::this_thread::sleep_for(milliseconds(1));
    }
    return false;
}

bool answered(const PeerReport &report) {
    return report.answers != 0 && report.silent_ns == 0;
}

/// A plain UDP socket, which counts what arrives and answers nothing; as a peer's or a stranger's.
class Listener {
  public:
    Listener() : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
        EXPECT_TRUE(liveness::Identity::make(identity_).ok());
        place_ = liveness::local_place(identity_.key());
        sockaddr_storage address;
        socklen_t length = liveness::to_socket_address(liveness::ipv4_address(htonl(INADDR_LOOPBACK)), address);
        EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr *>(&address), length), 0);
        EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr *>(&address), &length), 0);
        place_.addresses = {liveness::from_socket_address(address)};
    }
    ~Listener() { close(fd_); }
    std::string address() const { return liveness::to_text(place_); }
    int drain() {
        char bytes[1024];
        int count = 0;
        while (recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT) >= 0)
            ++count;
        return count;
    }
    /// Whether something comes within a while; it is drained.
    bool hears(milliseconds limit = milliseconds(3000)) {
        pollfd event{fd_, POLLIN, 0};
        return poll(&event, 1, static_cast<int>(limit.count())) == 1 && drain() > 0;
    }
    void send(std::span<const std::byte> bytes, const liveness::Address &to) {
        sockaddr_storage address;
        const socklen_t length = liveness::to_socket_address(to, address);
        EXPECT_GE(sendto(fd_, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr *>(&address), length), 0);
    }
    const liveness::Identity &identity() const { return identity_; }

  private:
    int fd_;
    liveness::Identity identity_;
    liveness::Place place_;
};

/// A process of its own that does nothing but live. It is forked before this one has threads, which ThreadSanitizer
/// wants, and so learns of its peer later.
class Child {
  public:
    explicit Child(uint64_t uid) {
        int from[2], to[2];
        EXPECT_EQ(pipe(from), 0);
        EXPECT_EQ(pipe(to), 0);
        pid_ = fork();
        if (pid_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            std::unique_ptr<Liveness> self;
            if (!Liveness::start(uid, self).ok())
                _exit(1);
            const std::string text = self->address() + "\n";
            if (write(from[1], text.data(), text.size()) != static_cast<ssize_t>(text.size()))
                _exit(1);
            if (const std::string peer = read_line(to[0]); !peer.empty() && !self->add_peer(1, peer).ok())
                _exit(1);
            for (;;)
                pause();
        }
        close(from[1]);
        close(to[0]);
        address_ = read_line(from[0]);
        close(from[0]);
        to_ = to[1];
    }
    ~Child() {
        if (pid_ > 0)
            kill_and_reap();
        close(to_);
    }
    void introduce(Liveness &parent, uint64_t uid) {
        EXPECT_TRUE(parent.add_peer(uid, address_).ok()) << address_;
        const std::string text = parent.address() + "\n";
        EXPECT_EQ(write(to_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    }
    void signal(int number) { ::kill(pid_, number); }
    void kill_and_reap() {
        ::kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }
    const std::string &address() const { return address_; }

  private:
    static std::string read_line(int fd) {
        std::string line;
        char c;
        while (read(fd, &c, 1) == 1 && c != '\n')
            line += c;
        return line;
    }

    pid_t pid_;
    int to_;
    std::string address_;
};

/// Runs `body` in a forked process, as what it does to the process is for good. What it returns must be true.
void apart(const std::function<bool()> &body) {
    const pid_t child = fork();
    if (child == 0)
        _exit(body() ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

/// Sanitizers keep what was freed, and what they know of it.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kMostGrowth = size_t{1} << 40;
#else
constexpr size_t kMostGrowth = 1 << 20;
#endif

size_t resident_bytes() {
    size_t pages = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> pages >> resident;
    return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

size_t open_descriptors() {
    size_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder != nullptr && readdir(folder) != nullptr)
        ++count;
    if (folder != nullptr)
        closedir(folder);
    return count;
}

TEST(Liveness, TwoAnswerEachOther) {
    const auto a = start(1), b = start(2);
    introduce(*a, 1, *b, 2);
    EXPECT_EQ(a->report(2).answers, 0u);
    EXPECT_EQ(a->report(2).silent_ns, 0);
    EXPECT_TRUE(ask_until(*a, 2, 0, answered));
    EXPECT_TRUE(ask_until(*b, 1, 0, answered));
    const PeerReport report = a->report(2);
    EXPECT_FALSE(report.refused);
    Status why;
    EXPECT_FALSE(a->told_broken(1, why));
    // Not asking is not silence.
    std::this_thread::sleep_for(milliseconds(200));
    EXPECT_EQ(a->report(2).silent_ns, 0);
}

TEST(Liveness, UnknownPeersAreIgnored) {
    const auto a = start(1), b = start(2);
    a->ask(2, 0);
    EXPECT_EQ(a->report(2).answers, 0u);
    ASSERT_TRUE(a->add_peer(2, b->address()).ok());
    ASSERT_TRUE(a->add_peer(2, b->address()).ok()) << "idempotent";
    EXPECT_TRUE(a->knows(2));
    EXPECT_FALSE(b->knows(1));
    const auto heard = [](const PeerReport &report) { return report.answers != 0; };
    EXPECT_FALSE(ask_until(*a, 2, 0, heard, milliseconds(500))) << "b was not told of a";
    EXPECT_FALSE(a->report(2).refused);
    ASSERT_TRUE(b->add_peer(1, a->address()).ok());
    EXPECT_TRUE(ask_until(*a, 2, 0, answered)) << "peers are added on each side in its own time";
}

/// One that got the port of another cannot speak for it.
TEST(Liveness, OtherKeysGetNoAnswer) {
    const auto a = start(1), b = start(2), other = start(3);
    introduce(*a, 1, *b, 2);
    introduce(*a, 1, *other, 3);
    liveness::Place place = place_of(*other);
    place.key[0] ^= 1;
    ASSERT_TRUE(a->add_peer(4, liveness::to_text(place)).ok());
    const auto heard = [](const PeerReport &report) { return report.answers != 0; };
    EXPECT_FALSE(ask_until(*a, 4, 0, heard, milliseconds(300)));
    EXPECT_GE(a->report(4).silent_ns, 250 * kMs);
    EXPECT_FALSE(a->report(4).refused);
}

/// One real message, as a peer sends it, of which strangers may make what they like.
struct Forger {
    Listener socket;
    liveness::Session session;
    std::array<std::byte, liveness::kMostBytes> bytes{};

    /// Of `peer`, which is told of this one as `uid`.
    Forger(Liveness &peer, uint64_t uid) {
        EXPECT_TRUE(peer.add_peer(uid, socket.address()).ok());
        EXPECT_TRUE(socket.identity().meet(place_of(peer).key, session));
    }
    std::span<const std::byte> question() {
        return std::span(bytes).first(liveness::encode(liveness::Datagram{}, session, bytes));
    }
};

TEST(Liveness, WhatCameBeforeIsNotHeardAgain) {
    const auto b = start(2);
    Forger peer(*b, 5);
    const liveness::Address to = place_of(*b).addresses.back();
    const auto sealed = peer.question();
    peer.socket.send(sealed, to);
    EXPECT_TRUE(peer.socket.hears());
    for (int i = 0; i < 10; ++i)
        peer.socket.send(sealed, to);
    EXPECT_FALSE(peer.socket.hears(milliseconds(200)));
    peer.socket.send(peer.question(), to);
    EXPECT_TRUE(peer.socket.hears()) << "a new one is";
}

TEST(Liveness, ManglingsAreNotHeard) {
    const auto b = start(2);
    Forger peer(*b, 5);
    const liveness::Address to = place_of(*b).addresses.back();
    for (size_t length = 0; length < liveness::kSealBytes + liveness::kHeaderBytes; ++length)
        peer.socket.send(peer.question().first(length), to);
    for (size_t at = 0; at < liveness::kSealBytes + liveness::kHeaderBytes; ++at) {
        peer.question();
        peer.bytes[at] ^= std::byte{1};
        peer.socket.send(std::span(peer.bytes).first(liveness::kSealBytes + liveness::kHeaderBytes), to);
    }
    // What a peer sealed, but of another length than it says, or of no kind.
    liveness::Datagram lie;
    lie.kind = liveness::Kind{99};
    peer.socket.send(std::span(peer.bytes).first(liveness::encode(lie, peer.session, peer.bytes)), to);
    lie = {};
    lie.why_bytes = 100;
    std::array<std::byte, liveness::kMostBytes> text{};
    std::memcpy(text.data(), &lie, liveness::kHeaderBytes);
    for (const size_t bytes : {size_t{0}, size_t{8}, liveness::kHeaderBytes, liveness::kHeaderBytes + 99})
        peer.socket.send(std::span(peer.bytes).first(peer.session.seal(std::span(text).first(bytes), peer.bytes)), to);
    EXPECT_FALSE(peer.socket.hears(milliseconds(200)));
    peer.socket.send(peer.question(), to);
    EXPECT_TRUE(peer.socket.hears());
}

/// No memory, no descriptor, and no answer that a peer misses for it.
TEST(Liveness, StrangersCostNothing) {
    const auto a = start(1), b = start(2);
    introduce(*a, 1, *b, 2);
    Forger peer(*b, 5);
    const liveness::Address to = place_of(*b).addresses.back();
    const auto flood = [&](int rounds) {
        std::array<std::byte, 2000> noise{};
        for (int i = 0; i < rounds; ++i) {
            noise[static_cast<size_t>(i) % noise.size()] ^= static_cast<std::byte>(i);
            peer.socket.send(std::span(noise).first(static_cast<size_t>(i * 7) % noise.size()), to);
            const auto sealed = peer.question();
            peer.socket.send(sealed, to);
            peer.socket.send(sealed, to);
            peer.socket.send(sealed.first(sealed.size() - 1), to);
            // A stranger that knows how messages look, and one that knows whom the responder knows.
            liveness::Identity none;
            liveness::Session stranger;
            std::array<std::byte, liveness::kMostBytes> bytes{};
            if (i % 64 == 0 && liveness::Identity::make(none).ok() && none.meet(place_of(*b).key, stranger)) {
                peer.socket.send(std::span(bytes).first(liveness::encode({}, stranger, bytes)), to);
                std::copy_n(sealed.begin(), liveness::kSealHeadBytes, bytes.begin());
                bytes[16] = std::byte{0xff};  // of a number that did not come yet
                peer.socket.send(bytes, to);
            }
            peer.socket.drain();
            if (i % 50 == 0) {
                EXPECT_TRUE(ask_until(*a, 2, 0, answered));
            }
        }
    };
    const auto connect = [&](int rounds) {
        std::vector<int> held;
        for (int i = 0; i < rounds; ++i) {
            sockaddr_storage address;
            const socklen_t length = liveness::to_socket_address(to, address);
            const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr *>(&address), length), 0);
            const std::string noise(static_cast<size_t>(i), 'x');
            static_cast<void>(::send(fd, noise.data(), noise.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
            held.push_back(fd);
        }
        EXPECT_TRUE(ask_until(*a, 2, 0, answered));
        for (const int fd : held)
            close(fd);
    };
    flood(100);
    connect(60);
    const size_t before = resident_bytes(), descriptors = open_descriptors();
    flood(2500);
    for (int i = 0; i < 10; ++i)
        connect(60);
    std::this_thread::sleep_for(milliseconds(300));
    EXPECT_LT(resident_bytes(), before + kMostGrowth);
    EXPECT_LE(open_descriptors(), descriptors + 40) << "that wait for their first word";
    EXPECT_TRUE(ask_until(*a, 2, 0, answered));
}

TEST(Liveness, StoppedIsSilentContinuedAnswersKilledIsRefused) {
    Child child(2);
    const auto a = start(1);
    child.introduce(*a, 2);
    ASSERT_TRUE(ask_until(*a, 2, 0, answered));

    child.signal(SIGSTOP);
    int64_t before = 0;
    EXPECT_TRUE(ask_until(*a, 2, 0, [&](const PeerReport &report) { return report.silent_ns > 200 * kMs; }));
    before = a->report(2).silent_ns;
    EXPECT_TRUE(ask_until(*a, 2, 0, [&](const PeerReport &report) { return report.silent_ns > before + 200 * kMs; }));
    EXPECT_FALSE(a->report(2).refused);
    EXPECT_GT(a->report(2).answers, 0u);

    child.signal(SIGCONT);
    EXPECT_TRUE(ask_until(*a, 2, 0, answered));

    child.kill_and_reap();
    EXPECT_TRUE(ask_until(*a, 2, 0, [](const PeerReport &report) { return report.refused; }));
    EXPECT_GT(a->report(2).silent_ns, 0);
}

TEST(Liveness, DeathBeforeTheFirstAnswerIsRefused) {
    std::string address;
    {
        Child child(2);
        address = child.address();
    }
    const auto a = start(1);  // after the fork: ThreadSanitizer allows no threads in a child of several
    ASSERT_TRUE(a->add_peer(2, address).ok());
    EXPECT_TRUE(ask_until(*a, 2, 0, [](const PeerReport &report) { return report.refused && report.answers == 0; }));
}

/// A gap in which nobody asked, as when this process was stopped itself, adds a second at most.
TEST(Liveness, SilenceCountsOnlyWhileAsking) {
    Listener mute;
    const auto a = start(1);
    ASSERT_TRUE(a->add_peer(2, mute.address()).ok());
    a->ask(2, 0);
    std::this_thread::sleep_for(milliseconds(1500));
    EXPECT_GE(a->report(2).silent_ns, 1000 * kMs);
    EXPECT_LE(a->report(2).silent_ns, 1000 * kMs);
    a->ask(2, 0);
    EXPECT_GE(a->report(2).silent_ns, 1000 * kMs);
    EXPECT_LT(a->report(2).silent_ns, 1400 * kMs);
}

TEST(Liveness, CarriesTheSentenceOfABrokenCommunicator) {
    const auto a = start(1), b = start(2);
    introduce(*a, 1, *b, 2);
    b->declare_broken(7, Status(Fault::peer_died, "rank 3 on node9 died"), {});
    b->declare_broken(7, Status(Fault::no_link, "a later sentence changes nothing"), {});
    b->declare_broken(8, Status(Fault::calls_differ, std::string(1000, 'w')), {});
    ASSERT_TRUE(ask_until(*a, 2, 6, answered));
    Status why;
    EXPECT_FALSE(a->told_broken(6, why));
    EXPECT_FALSE(a->told_broken(7, why));
    EXPECT_TRUE(ask_until(*a, 2, 7, [&](const PeerReport &) { return a->told_broken(7, why); }));
    EXPECT_EQ(why.code(), FLX_ERR_PEER);
    EXPECT_EQ(why.sentence(), "rank 3 on node9 died [FLX-E601]");
    EXPECT_TRUE(ask_until(*a, 2, 8, [&](const PeerReport &) { return a->told_broken(8, why); }));
    EXPECT_EQ(why.code(), FLX_ERR_MISMATCH);
    EXPECT_EQ(why.sentence(), std::string(liveness::kWhyBytes, 'w') + " [FLX-E401]");
}

/// Nobody asks here, and the one that tells is gone before anybody could.
TEST(Liveness, TellsPeersOfABrokenCommunicatorAtOnce) {
    const auto a = start(1), c = start(3);
    auto b = start(2);
    introduce(*a, 1, *b, 2);
    introduce(*c, 3, *b, 2);
    const uint64_t peers[] = {1};
    b->declare_broken(5, Status(Fault::peer_died, "rank 0 died"), peers);
    b.reset();
    Status why;
    const auto end = steady_clock::now() + milliseconds(5000);
    while (!a->told_broken(5, why) && steady_clock::now() < end)
        std::this_thread::sleep_for(milliseconds(1));
    EXPECT_EQ(why.code(), FLX_ERR_PEER);
    EXPECT_EQ(why.sentence(), "rank 0 died [FLX-E601]");
    EXPECT_FALSE(c->told_broken(5, why)) << "not among those to be told";
    EXPECT_EQ(a->report(2).answers, 0u) << "a notice answers no question";
}

/// Two threads wait on two communicators; the rate limit lets both questions through in turn.
TEST(Liveness, QuestionsAboutTwoCommunicatorsTakeTurns) {
    const auto a = start(1), b = start(2);
    introduce(*a, 1, *b, 2);
    b->declare_broken(9, Status(Fault::peer_died, "broken"), {});
    bool found = false;
    const auto end = steady_clock::now() + milliseconds(5000);
    while (!found && steady_clock::now() < end) {
        a->ask(2, 5);  // always first
        a->ask(2, 9);
        Status why;
        found = a->told_broken(9, why);
        std::this_thread::sleep_for(milliseconds(1));
    }
    EXPECT_TRUE(found);
}

TEST(Liveness, IdleSendsNothingAndQuestionsAreRateLimited) {
    Listener listener;
    const auto a = start(1);
    ASSERT_TRUE(a->add_peer(2, listener.address()).ok());
    std::this_thread::sleep_for(milliseconds(300));
    EXPECT_EQ(listener.drain(), 0);

    const auto begin = steady_clock::now();
    int asked = 0;
    while (steady_clock::now() < begin + milliseconds(400)) {
        a->ask(2, 0);
        ++asked;
        std::this_thread::sleep_for(milliseconds(1));
    }
    const auto elapsed = std::chrono::duration_cast<milliseconds>(steady_clock::now() - begin).count();
    const int received = listener.drain();
    EXPECT_GT(asked, 20);
    EXPECT_GE(received, 2);
    EXPECT_LE(received, elapsed / 50 + 1);
}

TEST(Liveness, AnswersHaveWhatIsSaidOfACommunicator) {
    const auto a = start(1), b = start(2);
    introduce(*a, 1, *b, 2);
    const auto says = [](const std::string &word) {
        return [word](uint64_t number, std::span<std::byte> said) {
            const std::string text = word + std::to_string(number);
            std::memcpy(said.data(), text.data(), text.size());
            return text.size();
        };
    };
    b->say_of(7, says("seven "));
    const auto ask = [&](uint32_t comm, uint64_t number) {
        const uint64_t before = a->report(2).answers;
        const auto end = steady_clock::now() + milliseconds(5000);
        while (a->report(2).answers == before && steady_clock::now() < end) {
            a->ask(2, comm, number);
            std::this_thread::sleep_for(milliseconds(1));
        }
        return a->said(2, comm).bytes;
    };
    EXPECT_EQ(ask(7, 3), "") << "nobody here wants to hear of it";
    a->say_of(7, says(""));
    EXPECT_EQ(ask(7, 1'000'000'000'000), "seven 1000000000000");
    EXPECT_EQ(ask(8, 3), "");
    EXPECT_EQ(a->said(2, 7).bytes, "seven 1000000000000") << "the last word";
    EXPECT_GE(a->said(2, 7).times, 1U);
    Status why;
    EXPECT_FALSE(a->told_broken(7, why));

    b->say_of(7, nullptr);
    EXPECT_EQ(ask(7, 4), "seven 1000000000000");
    b->say_of(7, says("seven "));
    EXPECT_EQ(ask(7, 5), "seven 5");
    b->declare_broken(7, Status(Fault::peer_died, "because"), {});
    EXPECT_EQ(ask(7, 6), "seven 5");
    EXPECT_TRUE(a->told_broken(7, why));
    a->say_of(7, nullptr);
    EXPECT_EQ(a->said(2, 7).bytes, "");
}

/// No signal handler of the program may run in the responder thread.
TEST(Liveness, ThreadIsNamedAndBlocksSignals) {
    const auto a = start(1);
    ASSERT_TRUE(a->add_peer(1, a->address()).ok());
    ASSERT_TRUE(ask_until(*a, 1, 0, answered)) << "a process can ask itself";
    int found = 0;
    DIR *tasks = opendir("/proc/self/task");
    ASSERT_NE(tasks, nullptr);
    while (const dirent *entry = readdir(tasks)) {
        std::ifstream status("/proc/self/task/" + std::string(entry->d_name) + "/status");
        std::string key, name, line;
        uint64_t blocked = 0;
        while (std::getline(status, line)) {
            std::istringstream words(line);
            words >> key;
            if (key == "Name:")
                words >> name;
            if (key == "SigBlk:")
                words >> std::hex >> blocked;
        }
        if (name == "flx-liveness") {
            ++found;
            for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGCHLD, SIGPROF})
                EXPECT_TRUE((blocked >> (number - 1)) & 1) << number;
        }
    }
    closedir(tasks);
    EXPECT_EQ(found, 1);
    sigset_t mine;
    pthread_sigmask(SIG_SETMASK, nullptr, &mine);
    EXPECT_EQ(sigismember(&mine, SIGUSR1), 0) << "the caller's own mask is as before";
}

/// For ThreadSanitizer: everything at once from several threads.
TEST(Liveness, ThreadsMayUseItTogether) {
    const auto a = start(1), b = start(2);
    introduce(*a, 1, *b, 2);
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] {
            for (uint32_t i = 0; i < 100; ++i) {
                a->say_of(t + 1, [](uint64_t, std::span<std::byte>) { return size_t{0}; });
                a->ask(2, t + 1);
                b->ask(1, t + 1);
                if (i == 50)
                    a->declare_broken(t + 1, Status(Fault::peer_died, "because"), std::array<uint64_t, 1>{2});
                EXPECT_FALSE(b->report(1).refused);
                a->say_of(t + 1, nullptr);
                std::this_thread::sleep_for(milliseconds(1));
            }
        });
    }
    for (std::thread &thread : threads)
        thread.join();
    Status why;
    EXPECT_TRUE(ask_until(*b, 1, 2, [&](const PeerReport &) { return b->told_broken(2, why); }));
}

/// A child that is forked keeps nothing of its parent: neither its port nor its word.
TEST(Liveness, ForkedChildrenDoNotSpeakForTheirParent) {
    const auto a = start(1);
    auto b = start(2);
    introduce(*a, 1, *b, 2);
    ASSERT_TRUE(ask_until(*a, 2, 0, answered));
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t lasting = fork();
    if (lasting == 0) {
        close(ends[1]);
        char c;
        static_cast<void>(read(ends[0], &c, 1));  // until the parent closes its end
        _exit(0);
    }
    const pid_t ending = fork();
    if (ending == 0) {
        b.reset();
        _exit(0);
    }
    close(ends[0]);
    int status = -1;
    EXPECT_EQ(waitpid(ending, &status, 0), ending);
    EXPECT_EQ(status, 0);
    const uint64_t answers = a->report(2).answers;
    EXPECT_TRUE(ask_until(*a, 2, 0, [&](const PeerReport &report) { return report.answers > answers + 2; }));
    b.reset();  // as if it was killed
    EXPECT_TRUE(ask_until(*a, 2, 0, [](const PeerReport &report) { return report.refused; }));
    close(ends[1]);
    waitpid(lasting, nullptr, 0);
}

/// A responder may have to wait for a core whatever it has just done; here it waits where it is asked for a word.
TEST(Liveness, AnAnswerSaysWhenItsQuestionWasAsked) {
    const auto a = start(1);
    const auto b = start(2);
    introduce(*a, 1, *b, 2);
    b->say_of(7, [](uint64_t, std::span<std::byte>) {
        std::this_thread::sleep_for(milliseconds(200));
        return size_t{0};
    });
    const int64_t before = now_ns();
    a->ask(2, 7);
    const int64_t asked = now_ns();
    while (a->process_answered_ns(2) == 0 && now_ns() - asked < 20'000 * kMs)
        sched_yield();
    EXPECT_GE(now_ns() - asked, 190 * kMs);
    EXPECT_LE(a->process_answered_ns(2), asked);
    EXPECT_GT(a->process_answered_ns(2), before - kMs);
    b->say_of(7, nullptr);
}

TEST(Liveness, WhatCameOverAPathIsAnsweredBeforeWhatAProcessWasAsked) {
    const auto a = start(1);
    const auto b = start(2);
    introduce(*a, 1, *b, 2);
    const int path = a->add_path(2, "lo", place_of(*a).addresses.front().host, place_of(*b).addresses.front().host);
    ASSERT_GE(path, 0);
    b->say_of(7, [](uint64_t, std::span<std::byte>) {
        std::this_thread::sleep_for(milliseconds(500));
        return size_t{0};
    });
    std::atomic<int> said{0};
    std::atomic<bool> first{false};
    b->say_of(8, [&](uint64_t, std::span<std::byte>) {
        const auto end = steady_clock::now() + milliseconds(2000);
        while (a->path_report(path).answers == 0 && steady_clock::now() < end)
            sched_yield();
        first = a->path_report(path).answers != 0;
        ++said;
        return size_t{0};
    });
    a->ask(2, 7);
    std::this_thread::sleep_for(milliseconds(100));
    a->ask(2, 8);  // it is still busy
    a->ask_path(path);
    while (said == 0)
        sched_yield();
    EXPECT_TRUE(first);
    b->say_of(7, nullptr);
    b->say_of(8, nullptr);
}

TEST(Liveness, ConnectsWhereDatagramsDoNotComeThrough) {
    const auto a = start(1);
    auto b = start(2);
    introduce(*a, 1, *b, 2);
    EXPECT_EQ(a->asked(2), Asked::unanswered);
    drop_datagrams = true;
    EXPECT_TRUE(ask_until(*a, 2, 0, answered));
    EXPECT_EQ(a->asked(2), Asked::by_stream);
    EXPECT_EQ(a->process_answered_ns(2), 0) << "nothing is known of paths";
    EXPECT_EQ(b->asked(1), Asked::unanswered);
    // What is said beside questions comes, too, and from the side that was connected to.
    Status why;
    const uint64_t first[] = {2}, second[] = {1};
    a->declare_broken(7, Status(Fault::peer_died, "this way"), first);
    b->declare_broken(8, Status(Fault::peer_died, "that way"), second);
    EXPECT_TRUE(ask_until(*a, 2, 0, [&](const PeerReport &) { return b->told_broken(7, why); }));
    EXPECT_TRUE(ask_until(*a, 2, 0, [&](const PeerReport &) { return a->told_broken(8, why); }));
    a->tell(2, -1, "word", 4);
    uint64_t uid = 0;
    std::string word;
    EXPECT_TRUE(ask_until(*a, 2, 0, [&](const PeerReport &) { return b->hear(uid, word); }));
    EXPECT_EQ(uid, 1u);
    EXPECT_EQ(word, "word");
    EXPECT_TRUE(ask_until(*b, 1, 0, answered));
    // A death is found at once, and not only by silence.
    b.reset();
    EXPECT_TRUE(ask_until(*a, 2, 0, [](const PeerReport &report) { return report.refused; }));
    drop_datagrams = false;
}

TEST(Liveness, AStoppedProcessIsSilentOverConnectionsToo) {
    Child child(2);
    const auto a = start(1);
    child.introduce(*a, 2);
    drop_datagrams = true;  // this process's, but not the child's answers
    ASSERT_TRUE(ask_until(*a, 2, 0, answered));
    child.signal(SIGSTOP);
    EXPECT_TRUE(ask_until(*a, 2, 0, [](const PeerReport &report) { return report.silent_ns > 1500 * kMs; }));
    EXPECT_FALSE(a->report(2).refused);
    child.signal(SIGCONT);
    EXPECT_TRUE(ask_until(*a, 2, 0, answered));
    child.kill_and_reap();
    EXPECT_TRUE(ask_until(*a, 2, 0, [](const PeerReport &report) { return report.refused; }));
    drop_datagrams = false;
}

/// In a network namespace without an IPv4 address.
TEST(Liveness, Ipv6Alone) {
    apart([] {
        if (unshare(CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
            std::cout << "skipped: no network namespaces here\n";
            return true;
        }
        ifreq request{};
        std::strcpy(request.ifr_name, "lo");
        const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        ioctl(fd, SIOCGIFFLAGS, &request);
        request.ifr_flags |= IFF_UP;
        ioctl(fd, SIOCSIFFLAGS, &request);
        request.ifr_addr = {};
        request.ifr_addr.sa_family = AF_INET;
        ioctl(fd, SIOCSIFADDR, &request);  // 0.0.0.0: none
        close(fd);
        auto a = start(1), b = start(2);
        if (!a || !b)
            return false;
        a->open_network();
        introduce(*a, 1, *b, 2);
        std::cout << a->address() << "\n";
        if (a->address().find("[::1]:") == std::string::npos || a->address().find('.') != std::string::npos ||
            !ask_until(*a, 2, 0, answered) || a->asked(2) != Asked::by_datagram)
            return false;
        auto c = start(3);
        introduce(*c, 3, *b, 2);
        drop_datagrams = true;
        if (!ask_until(*c, 2, 0, answered) || c->asked(2) != Asked::by_stream)
            return false;
        drop_datagrams = false;
        b.reset();
        const auto gone = [](const PeerReport &report) { return report.refused; };
        return ask_until(*a, 2, 0, gone) && ask_until(*c, 2, 0, gone);
    });
}

TEST(LivenessSeal, NumbersCountOnceAndInAnyOrder) {
    liveness::Window window;
    EXPECT_FALSE(window.fresh(0));
    std::vector<uint64_t> numbers(6000);
    std::iota(numbers.begin(), numbers.end(), 1);
    std::mt19937 chance(1);
    for (size_t at = 0; at + 500 <= numbers.size(); at += 500)  // some overtake others, by less than a window
        std::shuffle(numbers.begin() + static_cast<std::ptrdiff_t>(at),
                     numbers.begin() + static_cast<std::ptrdiff_t>(at + 500), chance);
    for (const uint64_t number : numbers) {
        EXPECT_TRUE(window.fresh(number)) << number;
        window.add(number);
        EXPECT_FALSE(window.fresh(number)) << number;
    }
    EXPECT_FALSE(window.fresh(1)) << "too old to be known";
    window.add(1'000'000);
    EXPECT_TRUE(window.fresh(1'000'000 - liveness::Window::kNumbers + 1));
    EXPECT_FALSE(window.fresh(1'000'000 - liveness::Window::kNumbers));
    EXPECT_FALSE(window.fresh(1'000'000));
}

TEST(LivenessSeal, TellsNothingToOthers) {
    liveness::Identity a, b, c;
    for (liveness::Identity *each : {&a, &b, &c})
        ASSERT_TRUE(liveness::Identity::make(*each).ok());
    liveness::Session ab, ba, cb;
    ASSERT_TRUE(a.meet(b.key(), ab) && b.meet(a.key(), ba) && c.meet(b.key(), cb));
    const std::string text = "nobody else's business";
    std::array<std::byte, 256> sealed{}, opened{};
    const size_t length = ab.seal(std::as_bytes(std::span(text)), sealed);
    ASSERT_EQ(length, text.size() + liveness::kSealBytes);
    const auto message = std::span(sealed).first(length);
    EXPECT_EQ(std::string_view(reinterpret_cast<char *>(sealed.data()), length).find("nobody"), std::string::npos);
    EXPECT_FALSE(cb.open(message, opened).has_value());
    EXPECT_FALSE(ab.open(message, opened).has_value()) << "sent back to who sent it";
    EXPECT_FALSE(ba.open(message, std::span(opened).first(4)).has_value()) << "no room";
    ASSERT_EQ(ba.open(message, opened), text.size());
    EXPECT_EQ(std::string_view(reinterpret_cast<char *>(opened.data()), text.size()), text);
    EXPECT_FALSE(b.meet(liveness::PublicKey{}, ba)) << "no key";
}

std::vector<std::string> texts_of(const std::vector<liveness::Address> &addresses) {
    std::vector<std::string> texts;
    for (const liveness::Address &address : addresses)
        texts.push_back(liveness::to_text(address));
    return texts;
}

TEST(LivenessAddress, TextRoundTripAndWhatIsRejected) {
    const auto a = start(1);
    const liveness::Place place = place_of(*a);
    EXPECT_EQ(liveness::to_text(place), a->address());
    EXPECT_EQ(place.addresses.size(), 1U) << "ranks of one host need no more than loopback";
    EXPECT_TRUE(liveness::is_loopback(place.addresses.front()));

    const std::string key(64, 'a');
    const auto tolerant =
        liveness::parse_place("ff " + key + " fe80::1 nonsense 10.0.0.1 :9 10.0.0.1:0 10.0.0.1:65536 [10.0.0.1]:9 " +
                              "fd00::1:9 10.0.0.1:80  [fd00::1]:81 127.0.0.1:82");
    ASSERT_TRUE(tolerant.has_value());
    EXPECT_EQ(tolerant->host, 255u);
    EXPECT_EQ(tolerant->key[31], 0xaa);
    EXPECT_EQ(texts_of(tolerant->addresses), (std::vector<std::string>{"10.0.0.1:80", "[fd00::1]:81", "127.0.0.1:82"}));

    const std::vector<std::string> wrong = {"",
                                            "ff",
                                            "ff 10.0.0.1:80",
                                            "ff " + key.substr(1) + " 10.0.0.1:80",
                                            "xyz " + key + " 10.0.0.1:80",
                                            "ff " + key.substr(1) + "g 10.0.0.1:80"};
    for (const std::string &text : wrong) {
        EXPECT_EQ(a->add_peer(9, text).fault(), Fault::wrong_inside) << text;
    }
    EXPECT_EQ(a->add_peer(9, "ff " + key).code(), FLX_ERR_SYSTEM) << "nowhere to ask";
    EXPECT_EQ(a->add_peer(9, "ff " + key + " 127.0.0.1:80").fault(), Fault::no_address) << "another host's loopback";
}

/// What is bound is what peers are told of: loopback first, and the rest once there are other hosts.
TEST(LivenessAddress, ListensAtTheAddressesInUse) {
    const auto a = start(1);
    a->open_network();
    a->open_network();
    std::vector<std::string> told = texts_of(place_of(*a).addresses);
    EXPECT_TRUE(liveness::is_loopback(place_of(*a).addresses.back()));
    size_t bound = 0;
    for (int fd = 0; fd < 1024; ++fd) {
        sockaddr_storage address{};
        socklen_t length = sizeof address;
        int type = 0;
        socklen_t type_length = sizeof type;
        if (getsockname(fd, reinterpret_cast<sockaddr *>(&address), &length) != 0 ||
            (address.ss_family != AF_INET && address.ss_family != AF_INET6) ||
            getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_length) != 0)
            continue;
        ++bound;
        EXPECT_NE(std::find(told.begin(), told.end(), liveness::to_text(liveness::from_socket_address(address))),
                  told.end());
    }
    EXPECT_EQ(bound, 2 * told.size());
}

TEST(LivenessAddress, AnotherHostIsNotAskedAtAddressesOfThisOne) {
    const auto at = [](const char *text) { return *liveness::parse_address(text); };
    const auto bridge = at("172.17.0.1:9"), mine = at("10.0.0.1:9"), loopback = at("127.0.0.1:9");
    const auto their_bridge = at("172.17.0.1:7"), theirs = at("10.0.0.2:7"), their_loopback = at("127.0.0.1:7");
    const liveness::Place self{1, {}, {mine, bridge, loopback}};
    EXPECT_EQ(liveness::usable_addresses(self, {2, {}, {theirs, their_bridge, their_loopback}}), std::vector{theirs});
    EXPECT_EQ(liveness::usable_addresses(self, {1, {}, {mine, bridge, their_loopback}}), std::vector{their_loopback});
    EXPECT_EQ(liveness::usable_addresses(self, {1, {}, {mine}}), std::vector{mine});
}

}  // namespace
}  // namespace flx

// What the sockets of this program send in a datagram is lost while drop_datagrams says so.
extern "C" ssize_t sendto(int fd, const void *bytes, size_t length, int flags, const sockaddr *to,
                          socklen_t to_length) {
    if (flx::drop_datagrams && flx::sends_datagrams(fd))
        return static_cast<ssize_t>(length);
    return syscall(SYS_sendto, fd, bytes, length, flags, to, to_length);
}

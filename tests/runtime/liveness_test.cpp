#include "liveness.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>
#include <vector>

#include "liveness_wire.h"

namespace flx {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr uint64_t kSecret = 0x5EC12E7;  // of every process here, unless said otherwise
constexpr int64_t kMs = 1'000'000;

std::unique_ptr<Liveness> start(uint64_t uid, uint64_t secret = kSecret) {
    std::unique_ptr<Liveness> result;
    const Status status = Liveness::start(secret, uid, result);
    EXPECT_TRUE(status.ok()) << status.sentence();
    return result;
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

/// A plain UDP socket in a peer's place, which counts what arrives and answers nothing.
class Listener {
  public:
    Listener() : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t length = sizeof(address);
        EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr *>(&address), length), 0);
        EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr *>(&address), &length), 0);
        place_ = liveness::local_place(ntohs(address.sin_port), kSecret);
        place_.addresses = {address.sin_addr.s_addr};
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
    int fd() const { return fd_; }

  private:
    int fd_;
    liveness::Place place_;
};

/// A process of its own that does nothing but live.
class Child {
  public:
    explicit Child(uint64_t uid) {
        int ends[2];
        EXPECT_EQ(pipe(ends), 0);
        pid_ = fork();
        if (pid_ == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            std::unique_ptr<Liveness> self;
            if (!Liveness::start(kSecret, uid, self).ok())
                _exit(1);
            const std::string text = self->address() + "\n";
            if (write(ends[1], text.data(), text.size()) != static_cast<ssize_t>(text.size()))
                _exit(1);
            for (;;)
                pause();
        }
        close(ends[1]);
        char c;
        while (read(ends[0], &c, 1) == 1 && c != '\n')
            address_ += c;
        close(ends[0]);
    }
    ~Child() {
        if (pid_ > 0)
            kill_and_reap();
    }
    void signal(int number) { ::kill(pid_, number); }
    void kill_and_reap() {
        ::kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }
    const std::string &address() const { return address_; }

  private:
    pid_t pid_;
    std::string address_;
};

TEST(Liveness, TwoAnswerEachOther) {
    const auto a = start(1), b = start(2);
    ASSERT_TRUE(a->add_peer(2, b->address()).ok());
    ASSERT_TRUE(b->add_peer(1, a->address()).ok());
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
    // b does not know a and answers all the same: peers are added on each side in its own time.
    EXPECT_TRUE(ask_until(*a, 2, 0, answered));
}

TEST(Liveness, OtherSecretsAndOtherUidsGetNoAnswer) {
    const auto a = start(1), stranger = start(2, kSecret + 1), other = start(3);
    auto place = liveness::parse_place(stranger->address());
    ASSERT_TRUE(place.has_value());
    place->secret = kSecret;  // as of the process that had the port before
    ASSERT_TRUE(a->add_peer(2, liveness::to_text(*place)).ok());
    ASSERT_TRUE(a->add_peer(4, other->address()).ok());  // the port is that of uid 3
    const auto heard = [](const PeerReport &report) { return report.answers != 0; };
    EXPECT_FALSE(ask_until(*a, 2, 0, heard, milliseconds(300)));
    EXPECT_FALSE(ask_until(*a, 4, 0, heard, milliseconds(300)));
    EXPECT_GE(a->report(2).silent_ns, 250 * kMs);
    EXPECT_FALSE(a->report(2).refused);
}

TEST(Liveness, SurvivesDatagramsOfOthers) {
    const auto a = start(1), b = start(2);
    ASSERT_TRUE(a->add_peer(2, b->address()).ok());
    const auto place = liveness::parse_place(b->address());
    ASSERT_TRUE(place.has_value());
    Listener sender;
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(place->port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (const size_t bytes : {0, 1, 8, 71, 72, 73, 328, 329, 5000}) {
        const std::string noise(bytes, 'x');
        EXPECT_GE(sendto(sender.fd(), noise.data(), bytes, 0, reinterpret_cast<sockaddr *>(&to), sizeof(to)), 0);
    }
    // Right head, wrong length of the sentence.
    liveness::Datagram lie;
    lie.secret = kSecret;
    lie.to = 2;
    lie.why_bytes = 100000;
    EXPECT_GE(sendto(sender.fd(), &lie, sizeof(lie), 0, reinterpret_cast<sockaddr *>(&to), sizeof(to)), 0);
    EXPECT_TRUE(ask_until(*a, 2, 0, answered));
    EXPECT_EQ(sender.drain(), 0);
}

TEST(Liveness, StoppedIsSilentContinuedAnswersKilledIsRefused) {
    Child child(2);
    const auto a = start(1);
    ASSERT_TRUE(a->add_peer(2, child.address()).ok()) << child.address();
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
    ASSERT_TRUE(a->add_peer(2, b->address()).ok());
    b->declare_broken(7, Status(FLX_ERR_PEER, "rank 3 on node9 died"), {});
    b->declare_broken(7, Status(FLX_ERR_LINK, "a later sentence changes nothing"), {});
    b->declare_broken(8, Status(FLX_ERR_MISMATCH, std::string(1000, 'w')), {});
    ASSERT_TRUE(ask_until(*a, 2, 6, answered));
    Status why;
    EXPECT_FALSE(a->told_broken(6, why));
    EXPECT_FALSE(a->told_broken(7, why));
    EXPECT_TRUE(ask_until(*a, 2, 7, [&](const PeerReport &) { return a->told_broken(7, why); }));
    EXPECT_EQ(why.code(), FLX_ERR_PEER);
    EXPECT_EQ(why.sentence(), "rank 3 on node9 died");
    EXPECT_TRUE(ask_until(*a, 2, 8, [&](const PeerReport &) { return a->told_broken(8, why); }));
    EXPECT_EQ(why.code(), FLX_ERR_MISMATCH);
    EXPECT_EQ(why.sentence(), std::string(liveness::kWhyBytes, 'w'));
}

/// Nobody asks here, and the one that tells is gone before anybody could.
TEST(Liveness, TellsPeersOfABrokenCommunicatorAtOnce) {
    const auto a = start(1), c = start(3);
    auto b = start(2);
    ASSERT_TRUE(a->add_peer(2, b->address()).ok());
    ASSERT_TRUE(c->add_peer(2, b->address()).ok());
    ASSERT_TRUE(b->add_peer(1, a->address()).ok());
    ASSERT_TRUE(b->add_peer(3, c->address()).ok());
    const uint64_t peers[] = {1};
    b->declare_broken(5, Status(FLX_ERR_PEER, "rank 0 died"), peers);
    b.reset();
    Status why;
    const auto end = steady_clock::now() + milliseconds(5000);
    while (!a->told_broken(5, why) && steady_clock::now() < end)
        std::this_thread::sleep_for(milliseconds(1));
    EXPECT_EQ(why.code(), FLX_ERR_PEER);
    EXPECT_EQ(why.sentence(), "rank 0 died");
    EXPECT_FALSE(c->told_broken(5, why)) << "not among those to be told";
    EXPECT_EQ(a->report(2).answers, 0u) << "a notice answers no question";
}

/// Two threads wait on two communicators; the rate limit lets both questions through in turn.
TEST(Liveness, QuestionsAboutTwoCommunicatorsTakeTurns) {
    const auto a = start(1), b = start(2);
    ASSERT_TRUE(a->add_peer(2, b->address()).ok());
    b->declare_broken(9, Status(FLX_ERR_PEER, "broken"), {});
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
    ASSERT_TRUE(a->add_peer(2, b->address()).ok());
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
    b->declare_broken(7, Status(FLX_ERR_PEER, "because"), {});
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
    ASSERT_TRUE(a->add_peer(2, b->address()).ok());
    ASSERT_TRUE(b->add_peer(1, a->address()).ok());
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 3; ++t) {
        threads.emplace_back([&, t] {
            for (uint32_t i = 0; i < 100; ++i) {
                a->say_of(t + 1, [](uint64_t, std::span<std::byte>) { return size_t{0}; });
                a->ask(2, t + 1);
                b->ask(1, t + 1);
                if (i == 50)
                    a->declare_broken(t + 1, Status(FLX_ERR_PEER, "because"), std::array<uint64_t, 1>{2});
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

TEST(LivenessAddress, TextRoundTripAndWhatIsRejected) {
    const auto a = start(1);
    const auto place = liveness::parse_place(a->address());
    ASSERT_TRUE(place.has_value());
    EXPECT_EQ(liveness::to_text(*place), a->address());
    EXPECT_FALSE(place->addresses.empty());

    const auto tolerant = liveness::parse_place("ff 80 ace fe80::1 nonsense 10.0.0.1  127.0.0.1");
    ASSERT_TRUE(tolerant.has_value());
    EXPECT_EQ(tolerant->host, 255u);
    EXPECT_EQ(tolerant->port, 80);
    EXPECT_EQ(tolerant->secret, 0xaceu);
    EXPECT_EQ(tolerant->addresses, (std::vector<uint32_t>{htonl(0x0A000001), htonl(0x7F000001)}));

    for (const char *text : {"", "ff", "ff 80", "ff 80 10.0.0.1", "ff 0 1 10.0.0.1", "ff 65536 1 10.0.0.1",
                             "xyz 80 1 10.0.0.1", "ff 8x 1 10.0.0.1"}) {
        EXPECT_EQ(a->add_peer(9, text).code(), FLX_ERR_ARGUMENT) << text;
    }
    EXPECT_EQ(a->add_peer(9, "ff 80 1").code(), FLX_ERR_SYSTEM) << "nowhere to ask";
    EXPECT_EQ(a->add_peer(9, "ff 80 1 127.0.0.1").code(), FLX_ERR_SYSTEM) << "another host's loopback";
}

TEST(LivenessAddress, AnotherHostIsNotAskedAtAddressesOfThisOne) {
    const uint32_t bridge = htonl(0xAC110001), mine = htonl(0x0A000001), theirs = htonl(0x0A000002),
                   loopback = htonl(0x7F000001);
    const liveness::Place self{1, 1000, {mine, bridge, loopback}};
    EXPECT_EQ(liveness::usable_addresses(self, {2, 2000, {theirs, bridge, loopback}}), std::vector<uint32_t>{theirs});
    EXPECT_EQ(liveness::usable_addresses(self, {1, 2000, {mine, bridge, loopback}}),
              (std::vector<uint32_t>{mine, bridge, loopback}));
}

}  // namespace
}  // namespace flx

// Three processes' rails in one, over loopback: a line for each pair, and nothing else between them. What becomes of
// chunks from A to B when their line swallows everything and C reaches both.
#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>

#include "runtime/base/clock.h"
#include "runtime/process/guard.h"
#include "tests/ucx_glue/traffic.h"
#include "ucx_glue/rails.h"

namespace flx::ucx {
namespace {

using namespace std::chrono_literals;

constexpr int kA = 0;
constexpr int kB = 1;
constexpr int kC = 2;
constexpr int kD = 3;  ///< only where a test says so
constexpr int kMost = 4;
constexpr size_t kBytes = 60000;
constexpr int kExtra = 6;  // a line that pairs do not have

/// Of process `index`.
uint64_t uid_of(int index) {
    return static_cast<uint64_t>(index) + 1;
}
/// The line between two.
int line_of(int a, int b) {
    const int more = a > b ? a : b;
    return more * (more - 1) / 2 + a + b - more;
}

struct Network {
    std::recursive_mutex mutex;
    std::set<int> silent;  // lines
    std::map<uint64_t, std::deque<std::pair<uint64_t, std::string>>> boxes;
    std::map<uint64_t, std::function<void()>> wake;
};

/// A pair has one path, so that a process whose line is cut answers nowhere.
class PairPaths final : public Paths {
  public:
    PairPaths(Network &network, int self) : network_(network), self_(self) {}
    int add_path(uint64_t uid, const std::string &, const HostAddress &, const HostAddress &) override {
        return static_cast<int>(uid);
    }
    void ask_path(int path) override {
        const std::lock_guard lock(network_.mutex);
        Far &far = far_[static_cast<uint64_t>(path)];
        if (hears(static_cast<uint64_t>(path))) {
            ++far.report.answers;
            far.report.answered_ns = now_ns();
            far.report.unanswered = 0;
            far.waits_ns = 0;
        } else if (far.report.unanswered++ == 0) {
            far.since_ns = now_ns();
        }
    }
    [[nodiscard]] PathReport path_report(int path) const override {
        const std::lock_guard lock(network_.mutex);
        const auto found = far_.find(static_cast<uint64_t>(path));
        if (found == far_.end())
            return {};
        PathReport report = found->second.report;
        report.silent_ns = report.unanswered == 0 ? 0 : now_ns() - found->second.since_ns;
        return report;
    }
    void ask_process(uint64_t uid) override {
        const std::lock_guard lock(network_.mutex);
        Far &far = far_[uid];
        if (hears(uid)) {
            far.answered_ns = now_ns();
            far.waits_ns = 0;
        } else if (far.waits_ns == 0) {
            far.waits_ns = now_ns();
        }
    }
    [[nodiscard]] int64_t process_answered_ns(uint64_t uid) const override {
        const std::lock_guard lock(network_.mutex);
        const auto found = far_.find(uid);
        return found == far_.end() ? 0 : found->second.answered_ns;
    }
    void vouch(uint64_t uid) override {
        const std::lock_guard lock(network_.mutex);
        far_[uid].waits_ns = 0;
        ++vouched;
    }
    [[nodiscard]] int64_t process_silent_ns(uint64_t uid) const override {
        const std::lock_guard lock(network_.mutex);
        const auto found = far_.find(uid);
        return found == far_.end() || found->second.waits_ns == 0 ? 0 : now_ns() - found->second.waits_ns;
    }
    [[nodiscard]] bool process_gone(uint64_t) const override { return false; }
    void tell(uint64_t uid, int, const void *word, size_t bytes) override {
        const std::lock_guard lock(network_.mutex);
        if (!hears(uid))
            return;
        network_.boxes[uid].emplace_back(uid_of(self_), std::string(static_cast<const char *>(word), bytes));
        if (const auto &wake = network_.wake[uid])
            wake();
    }
    bool hear(uint64_t &uid, std::string &word) override {
        const std::lock_guard lock(network_.mutex);
        auto &box = network_.boxes[uid_of(self_)];
        if (box.empty())
            return false;
        std::tie(uid, word) = box.front();
        box.pop_front();
        return true;
    }
    [[nodiscard]] bool has_words() const override {
        const std::lock_guard lock(network_.mutex);
        return !network_.boxes[uid_of(self_)].empty();
    }
    void on_word(std::function<void()> wake) override {
        const std::lock_guard lock(network_.mutex);
        network_.wake[uid_of(self_)] = std::move(wake);
    }
    int vouched = 0;

  private:
    struct Far {
        PathReport report;
        int64_t since_ns = 0;
        int64_t answered_ns = 0;
        int64_t waits_ns = 0;
    };
    [[nodiscard]] bool hears(uint64_t uid) const {
        return network_.silent.count(line_of(self_, static_cast<int>(uid) - 1)) == 0;
    }
    Network &network_;
    const int self_;
    std::map<uint64_t, Far> far_;
};

class Relaying : public ::testing::Test {
  protected:
    /// One communicator of the first `processes` with everything, ranks in order.
    void start(double deadline_s = 30, size_t relay_bytes = 16 << 20, int processes = 3) {
        processes_ = processes;
        std::vector<RailSpec> specs;
        for (int i = 0; i <= kExtra; ++i)
            specs.push_back({"line" + std::to_string(i), "lo", "tcp", false});
        RailOptions options;
        options.timeout_s = 0.1;
        options.relay_bytes = relay_bytes;
        for (int self = 0; self < processes; ++self) {
            options.paths = &paths_[self];
            rails_[self] = Rails::open(specs, uid_of(self), options);
        }
        for (int self = 0; self < processes; ++self) {
            for (int other = 0; other < processes; ++other) {
                if (other == self)
                    continue;
                const int line = line_of(self, other);
                ASSERT_TRUE(rails_[self]->connect(line, other, uid_of(other), rails_[other]->address(line)).ok());
                rails_[self]->name(other, std::string(1, static_cast<char>('a' + other)));
                std::vector<int> reached(kMost, -1);
                reached[other] = other;
                links_[self][line] = rails_[self]->link(line, 1, reached, deadline_s);
            }
        }
    }

    /// A and B have one more line, which communicator 1 does not use.
    void join_extra() {
        for (const auto &[self, other] : {std::pair(kA, kB), std::pair(kB, kA)})
            ASSERT_TRUE(rails_[self]->connect(kExtra, other, uid_of(other), rails_[other]->address(kExtra)).ok());
    }

    void swallow(int line, bool on) {
        for (int self = 0; self < processes_; ++self)
            rails_[self]->drop_arrivals(line, on);
        const std::lock_guard lock(network_.mutex);
        if (on)
            network_.silent.insert(line);
        else
            network_.silent.erase(line);
    }

    Link &link(int from, int to) { return *links_[from][line_of(from, to)]; }

    bool send(int from, int to, uint32_t block) {
        const auto key = std::pair(from, block);
        std::vector<std::byte> &source = sources_[key];
        source.resize(kBytes);
        for (size_t i = 0; i < kBytes; ++i)
            source[i] = test::content(1, from, block, i);
        ChunkHeader header{};
        header.sequence = 1;
        header.comm = 1;
        header.block = block;
        header.cells = 1;
        header.bytes = kBytes;
        if (link(from, to).send(to, header, source.data()) == SendResult::in_flight)
            return true;
        sources_.erase(key);
        return false;
    }

    void step(int self, bool receives = true) {
        rails_[self]->progress();
        for (auto &link : links_[self]) {
            if (link == nullptr)
                continue;
            link->progress();
            Completion completion;
            while (link->completed(completion))
                EXPECT_EQ(sources_.erase({self, completion.header.block}), 1U) << "completed twice, or never sent";
            for (int from = 0; from < processes_; ++from) {
                Arrival arrival;
                while (receives && link->reaches(from) && link->receive(from, arrival)) {
                    bool right = true;
                    for (size_t i = 0; i < arrival.header.bytes; ++i)
                        right &= arrival.data[i] == test::content(1, from, arrival.header.block, i);
                    EXPECT_TRUE(right) << "block " << arrival.header.block << " from " << from;
                    ++seen_[{from, arrival.header.block}];
                    link->release(arrival);
                }
            }
        }
    }
    void step() {
        for (int self = 0; self < processes_; ++self)
            step(self);
    }
    bool until(const std::function<bool()> &done, const std::function<void()> &turn,
               std::chrono::milliseconds limit = 20s) {
        const auto end = std::chrono::steady_clock::now() + limit;
        while (!done()) {
            if (std::chrono::steady_clock::now() > end)
                return false;
            turn();
            sched_yield();
        }
        return true;
    }
    bool until(const std::function<bool()> &done, std::chrono::milliseconds limit = 20s) {
        return until(
            done, [this] { step(); }, limit);
    }

    Network network_;
    int processes_ = 3;
    std::array<PairPaths, kMost> paths_{PairPaths(network_, kA), PairPaths(network_, kB), PairPaths(network_, kC),
                                        PairPaths(network_, kD)};
    std::array<std::unique_ptr<Rails>, kMost> rails_;
    std::array<std::array<std::unique_ptr<Link>, kExtra>, kMost> links_;
    std::map<std::pair<int, uint32_t>, std::vector<std::byte>> sources_;
    std::map<std::pair<int, uint32_t>, int> seen_;
};

TEST_F(Relaying, ChunksGoThroughAnotherProcessBothWaysUntilTheLineIsBack) {
    start();
    uint32_t block = 0;
    for (; block < 4; ++block)
        ASSERT_TRUE(send(kA, kB, block));
    ASSERT_TRUE(until([&] { return sources_.empty(); }));
    swallow(line_of(kA, kB), true);
    for (; block < 10; ++block) {
        ASSERT_TRUE(send(kA, kB, block));
        ASSERT_TRUE(send(kB, kA, block));
    }
    EXPECT_TRUE(until([&] { return sources_.empty(); })) << "what the line took did not arrive";
    EXPECT_EQ(link(kA, kB).outstanding(), 0U);
    // Further ones, more than a window's worth.
    for (; block < 100; ++block) {
        ASSERT_TRUE(until([&] { return send(kA, kB, block); }));
        ASSERT_TRUE(until([&] { return send(kB, kA, block); }));
    }
    EXPECT_TRUE(until([&] { return sources_.empty(); }));
    EXPECT_TRUE(link(kA, kB).error(kB).ok());
    EXPECT_GT(paths_[kA].vouched, 0) << "B answers nowhere but to C";
    swallow(line_of(kA, kB), false);
    EXPECT_TRUE(until(
        [&] { return rails_[kA]->failover_counters().returns == 1 && rails_[kB]->failover_counters().returns == 1; }));
    const uint64_t before = link(kA, kB).counters(kB).bytes;
    for (; block < 104; ++block)
        ASSERT_TRUE(until([&] { return send(kA, kB, block); }));
    EXPECT_TRUE(until([&] { return sources_.empty(); }));
    EXPECT_EQ(link(kA, kB).counters(kB).bytes - before, 4 * kBytes) << "by its own line again";
    for (uint32_t i = 0; i < block; ++i)
        EXPECT_EQ((seen_[{kA, i}]), 1) << "block " << i;
    for (uint32_t i = 4; i < 100; ++i)
        EXPECT_EQ((seen_[{kB, i}]), 1) << "block " << i;
}

TEST_F(Relaying, TheGuardRelaysWhileTheProgramComputes) {
    start();
    std::unique_ptr<Guard> guard;
    ASSERT_TRUE(Guard::start(*rails_[kC], guard).ok());
    paths_[kC].on_word([&] { guard->hurry(); });
    swallow(line_of(kA, kB), true);
    const auto turn = [&] {
        step(kA);
        step(kB);
    };
    for (uint32_t block = 0; block < 60; ++block)
        ASSERT_TRUE(until([&] { return send(kA, kB, block); }, turn));
    EXPECT_TRUE(until([&] { return sources_.empty(); }, turn));
    for (uint32_t block = 0; block < 60; ++block)
        EXPECT_EQ((seen_[{kA, block}]), 1);
    paths_[kC].on_word({});
    guard.reset();
}

TEST_F(Relaying, ARelayKeepsNoMoreThanItMay) {
    constexpr size_t kMostKept = 5 * kBytes;
    start(30, kMostKept);
    swallow(line_of(kA, kB), true);
    // C is slow, so that what both send meets there.
    int turn = 0;
    const auto slowly = [&] {
        step(kA);
        step(kB);
        if (++turn % 50 == 0)
            step(kC);
    };
    for (uint32_t block = 0; block < 40; ++block) {
        ASSERT_TRUE(until([&] { return send(kA, kB, block); }, slowly));
        ASSERT_TRUE(until([&] { return send(kB, kA, block); }, slowly));
    }
    EXPECT_TRUE(until([&] { return sources_.empty(); }, slowly));
    const FailoverCounters counters = rails_[kC]->failover_counters();
    EXPECT_GE(counters.relayed, 80U);
    EXPECT_GE(counters.relayed_most_bytes, kBytes);
    EXPECT_LE(counters.relayed_most_bytes, kMostKept);
    for (uint32_t block = 0; block < 40; ++block) {
        EXPECT_EQ((seen_[{kA, block}]), 1);
        EXPECT_EQ((seen_[{kB, block}]), 1);
    }
}

TEST_F(Relaying, AReceiverThatIsLateGetsNothingTwice) {
    start();
    swallow(line_of(kA, kB), true);
    for (uint32_t block = 0; block < 5; ++block)
        ASSERT_TRUE(send(kA, kB, block));
    // It receives and takes nothing for longer than the origin is patient.
    EXPECT_FALSE(until([&] { return sources_.empty(); },
                       [&] {
                           step(kA);
                           step(kB, false);
                           step(kC);
                       },
                       3500ms));
    EXPECT_TRUE(until([&] { return sources_.empty(); }));
    for (uint32_t block = 0; block < 5; ++block)
        EXPECT_EQ((seen_[{kA, block}]), 1);
}

TEST_F(Relaying, NoRelayIsGivenUpWhereNoOtherDoesBetter) {
    start(30, 16 << 20, kMost);
    swallow(line_of(kA, kB), true);
    const auto turn = [&] {
        for (const int self : {kA, kC, kD})
            step(self);
        step(kB, false);
    };
    for (uint32_t block = 0; block < 3; ++block)
        ASSERT_TRUE(send(kA, kB, block));
    ASSERT_TRUE(until([&] { return link(kA, kB).state(kB) == LinkState::lost; }, turn));
    ASSERT_TRUE(until([&] { return link(kA, kB).state(kB) == LinkState::up; }, turn));
    // Whichever of the two it was, nothing is acknowledged while the receiver takes nothing.
    EXPECT_FALSE(until([&] { return link(kA, kB).state(kB) == LinkState::lost; }, turn, 5000ms));
    EXPECT_TRUE(until([&] { return sources_.empty(); }));
    for (uint32_t block = 0; block < 3; ++block)
        EXPECT_EQ((seen_[{kA, block}]), 1);
}

TEST_F(Relaying, WhatARelayLosesComesAgain) {
    start();
    swallow(line_of(kA, kB), true);
    ASSERT_TRUE(send(kA, kB, 0));
    ASSERT_TRUE(until([&] { return sources_.empty(); }));
    // Messages from C vanish, words do not: chunks arrive, acknowledgements do not.
    rails_[kA]->drop_arrivals(line_of(kA, kC), true);
    for (uint32_t block = 1; block < 6; ++block)
        ASSERT_TRUE(send(kA, kB, block));
    EXPECT_FALSE(until([&] { return sources_.empty(); }, 500ms));
    rails_[kA]->drop_arrivals(line_of(kA, kC), false);
    rails_[kB]->drop_arrivals(line_of(kB, kC), true);
    for (uint32_t block = 6; block < 9; ++block)
        ASSERT_TRUE(send(kA, kB, block));
    EXPECT_FALSE(until([&] { return sources_.empty(); }, 300ms));
    rails_[kB]->drop_arrivals(line_of(kB, kC), false);
    EXPECT_TRUE(until([&] { return sources_.empty(); }));
    for (uint32_t block = 0; block < 9; ++block)
        EXPECT_EQ((seen_[{kA, block}]), 1);
}

TEST_F(Relaying, WithoutARelayItIsAnErrorAndARelayedLinkMayGo) {
    start(0.5);
    swallow(line_of(kA, kB), true);
    ASSERT_TRUE(send(kA, kB, 0));
    ASSERT_TRUE(until([&] { return sources_.empty(); }));
    swallow(line_of(kB, kC), true);
    for (uint32_t block = 1; block < 4; ++block)
        ASSERT_TRUE(send(kA, kB, block));
    EXPECT_TRUE(until([&] { return !link(kA, kB).error(kB).ok(); }));
    const std::string sentence = link(kA, kB).error(kB).sentence();
    for (const char *part : {"rank 1", "on b", "line0", "180000 B"})
        EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
    for (auto &link : links_[kA])
        link.reset();
    sources_.clear();  // a sanitizer would see it read
    swallow(line_of(kB, kC), false);
    until([] { return false; }, 1000ms);
    for (uint32_t block = 1; block < 4; ++block)
        EXPECT_EQ(seen_.count({kA, block}), 0U) << "from memory that was given up";
}

TEST_F(Relaying, AProcessThatGivesNoMemoryRelaysNothing) {
    start(0.5, 0);
    swallow(line_of(kA, kB), true);
    ASSERT_TRUE(send(kA, kB, 0));
    EXPECT_TRUE(until([&] { return !link(kA, kB).error(kB).ok(); }));
    EXPECT_GT(paths_[kA].vouched, 0);
    EXPECT_EQ(seen_.size(), 0U);
}

TEST_F(Relaying, AlsoWhereALinkOfTheCommunicatorWentBefore) {
    start();
    for (const int self : {kA, kB, kC})
        rails_[self]->link(kExtra, 1, std::vector<int>(3, -1), 30).reset();
    swallow(line_of(kA, kB), true);
    for (uint32_t block = 0; block < 6; ++block)
        ASSERT_TRUE(send(kA, kB, block));
    EXPECT_TRUE(until([&] { return sources_.empty(); }));
    for (uint32_t block = 0; block < 6; ++block)
        EXPECT_EQ((seen_[{kA, block}]), 1) << "block " << block << " was acknowledged and thrown away";
}

TEST_F(Relaying, WhatComesForACommunicatorThatIsClosedIsAcknowledged) {
    start(2);
    swallow(line_of(kA, kB), true);
    for (auto &link : links_[kB])
        link.reset();
    for (uint32_t block = 0; block < 3; ++block)
        ASSERT_TRUE(send(kA, kB, block));
    EXPECT_TRUE(until([&] { return sources_.empty(); }, 5s)) << link(kA, kB).error(kB).sentence();
    EXPECT_EQ(seen_.size(), 0U);
}

TEST_F(Relaying, ALineThatIsNotTheCommunicatorsDoesNotStandInForARelay) {
    start();
    join_extra();
    // Another communicator uses it, and needs no relay.
    std::vector<std::unique_ptr<Link>> theirs_a;
    for (const int line : {line_of(kA, kB), kExtra})
        theirs_a.push_back(rails_[kA]->link(line, 2, {-1, kB, -1}, 30));
    const std::unique_ptr<Link> theirs_b = rails_[kB]->link(kExtra, 2, {kA, -1, -1}, 30);
    swallow(line_of(kA, kB), true);
    uint32_t block = 0;
    for (; block < 6; ++block)
        ASSERT_TRUE(send(kA, kB, block));
    EXPECT_TRUE(until([&] { return sources_.empty(); })) << "nobody relays";
    for (; block < 40; ++block)
        ASSERT_TRUE(until([&] { return send(kA, kB, block); }));
    EXPECT_TRUE(until([&] { return sources_.empty(); }));
    for (uint32_t i = 0; i < block; ++i)
        EXPECT_EQ((seen_[{kA, i}]), 1) << "block " << i;
    EXPECT_GE(rails_[kC]->failover_counters().relayed, block);
    EXPECT_EQ(link(kA, kB).state(kB), LinkState::up);
    EXPECT_EQ(theirs_a[0]->state(kB), LinkState::lost) << "what its other link carries is not relayed";
    EXPECT_EQ(theirs_a[1]->state(kB), LinkState::up);
}

TEST_F(Relaying, ARelayOfTheCommunicatorKeepsToItsLines) {
    start(0.5);
    // C reaches B by a line that communicator 1 does not use, and by no other.
    for (const auto &[self, other] : {std::pair(kC, kB), std::pair(kB, kC)})
        ASSERT_TRUE(rails_[self]->connect(kExtra, other, uid_of(other), rails_[other]->address(kExtra)).ok());
    rails_[kC]->drop_arrivals(line_of(kB, kC), true);
    rails_[kB]->drop_arrivals(line_of(kB, kC), true);
    links_[kC][line_of(kB, kC)]->state(kB);
    ASSERT_TRUE(send(kC, kB, 0));
    EXPECT_TRUE(until([&] { return link(kC, kB).state(kB) == LinkState::lost; }));
    swallow(line_of(kA, kB), true);
    ASSERT_TRUE(send(kA, kB, 0));
    EXPECT_TRUE(until([&] { return !link(kA, kB).error(kB).ok(); })) << "it waits for a relay that may not";
    EXPECT_EQ(rails_[kC]->failover_counters().relayed, 0U);
}

}  // namespace
}  // namespace flx::ucx

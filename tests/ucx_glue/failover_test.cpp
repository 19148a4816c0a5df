// A line between two processes that swallows everything, and what becomes of its chunks: two processes' rails in one,
// over loopback, with paths that answer or not as the test says.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "runtime/base/clock.h"
#include "runtime/process/guard.h"
#include "tests/ucx_glue/traffic.h"
#include "ucx_glue/rails.h"

namespace flx::ucx {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kA = 1;
constexpr uint64_t kB = 2;

/// What carries questions and words between the two: all paths by number of the line.
struct Network {
    std::recursive_mutex mutex;
    std::set<int> silent;
    bool starves = false;  ///< the process answers for a moment after its first line fell silent, and no longer
    int64_t moment_ns = 40'000'000;
    int64_t starves_ns = 0;  ///< since when
    std::map<uint64_t, std::deque<std::pair<uint64_t, std::string>>> boxes;
    std::map<uint64_t, std::function<void()>> wake;
};

class TestPaths final : public Paths {
  public:
    TestPaths(Network &network, uint64_t uid) : network_(network), uid_(uid) {}
    int add_path(uint64_t, const std::string &, const HostAddress &, const HostAddress &) override {
        reports_.emplace_back();
        return static_cast<int>(reports_.size()) - 1;
    }
    void ask_path(int path) override {
        const std::lock_guard lock(network_.mutex);
        PathReport &report = reports_[path];
        if (network_.silent.count(path) == 0) {
            ++report.answers;
            report.answered_ns = now_ns();
            report.unanswered = 0;
            return;
        }
        if (report.unanswered++ == 0)
            since_[path] = now_ns();
        if (network_.starves && network_.starves_ns == 0)
            network_.starves_ns = since_[path] + network_.moment_ns;
    }
    /// All questions but the last have been answered.
    void answer_late(int path) {
        const std::lock_guard lock(network_.mutex);
        PathReport &report = reports_[path];
        ++report.answers;
        report.unanswered = 1;
        report.answered_ns = since_[path] = now_ns();
    }
    /// Whether a line has been silent so long.
    [[nodiscard]] bool silent_for(int path, int64_t ns) const { return path_report(path).silent_ns >= ns; }
    [[nodiscard]] PathReport path_report(int path) const override {
        const std::lock_guard lock(network_.mutex);
        PathReport report = reports_[path];
        report.silent_ns = report.unanswered == 0 ? 0 : now_ns() - since_.at(path);
        return report;
    }
    void ask_process(uint64_t) override {
        const std::lock_guard lock(network_.mutex);
        answered_ = network_.starves_ns == 0 ? now_ns() : std::min(now_ns(), network_.starves_ns);
    }
    [[nodiscard]] int64_t process_answered_ns(uint64_t) const override { return answered_; }
    void vouch(uint64_t) override {}
    [[nodiscard]] int64_t process_silent_ns(uint64_t) const override { return 0; }
    [[nodiscard]] bool process_gone(uint64_t) const override { return false; }
    void tell(uint64_t uid, int path, const void *word, size_t bytes) override {
        const std::lock_guard lock(network_.mutex);
        if (network_.silent.count(path) != 0)
            return;
        network_.boxes[uid].emplace_back(uid_, std::string(static_cast<const char *>(word), bytes));
        if (const auto &wake = network_.wake[uid])
            wake();
    }
    bool hear(uint64_t &uid, std::string &word) override {
        const std::lock_guard lock(network_.mutex);
        auto &box = network_.boxes[uid_];
        if (box.empty())
            return false;
        std::tie(uid, word) = box.front();
        box.pop_front();
        return true;
    }
    [[nodiscard]] bool has_words() const override {
        const std::lock_guard lock(network_.mutex);
        return !network_.boxes[uid_].empty();
    }
    void on_word(std::function<void()> wake) override {
        const std::lock_guard lock(network_.mutex);
        network_.wake[uid_] = std::move(wake);
    }

  private:
    Network &network_;
    const uint64_t uid_;
    std::vector<PathReport> reports_;
    std::map<int, int64_t> since_;
    int64_t answered_ = 0;
};

bool wait_for(const std::function<bool()> &done, std::chrono::milliseconds limit = 20s) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!done()) {
        if (std::chrono::steady_clock::now() > end)
            return false;
        sched_yield();
    }
    return true;
}

/// Two lines over loopback between A (rank 0) and B (rank 1), one communicator.
class Failing : public ::testing::Test {
  protected:
    /// Whether A loses its first line within `limit`, while nobody takes what arrives.
    bool loses_while_held(std::chrono::milliseconds limit) {
        return wait_for(
            [&] {
                step(false);
                return links_a_[0]->state(1) == LinkState::lost;
            },
            limit);
    }

    void start(int lines = 2, double deadline_s = 30, double timeout_s = 0.1) {
        std::vector<RailSpec> specs;
        for (int i = 0; i < lines; ++i)
            specs.push_back({"line" + std::to_string(i), "lo", "tcp", false});
        RailOptions options;
        options.timeout_s = timeout_s;
        options.paths = &paths_a_;
        a_ = Rails::open(specs, kA, options);
        options.paths = &paths_b_;
        b_ = Rails::open(specs, kB, options);
        for (int i = 0; i < lines; ++i) {
            ASSERT_TRUE(a_->connect(i, 1, kB, b_->address(i)).ok());
            ASSERT_TRUE(b_->connect(i, 0, kA, a_->address(i)).ok());
            links_a_.push_back(a_->link(i, 1, {-1, 1}, deadline_s));
            links_b_.push_back(b_->link(i, 1, {0, -1}, deadline_s));
        }
        a_->name(1, "b");
        b_->name(0, "a");
    }

    void swallow(int line, bool on) {
        a_->drop_arrivals(line, on);
        b_->drop_arrivals(line, on);
        const std::lock_guard lock(network_.mutex);
        if (on)
            network_.silent.insert(line);
        else
            network_.silent.erase(line);
    }

    static ChunkHeader header_of(uint64_t sequence, uint32_t block, size_t bytes) {
        ChunkHeader header{};
        header.sequence = sequence;
        header.comm = 1;
        header.block = block;
        header.cells = 1;
        header.bytes = static_cast<uint32_t>(bytes);
        return header;
    }

    /// Sends one chunk of each size from A over `line`; what was taken stays in sources_ until it is completed.
    bool send(int line, uint32_t block, size_t bytes) {
        std::vector<std::byte> &source = sources_[block];
        source.resize(bytes);
        for (size_t i = 0; i < bytes; ++i)
            source[i] = test::content(1, 0, block, i);
        const SendResult result = links_a_[line]->send(1, header_of(1, block, bytes), source.data());
        if (result == SendResult::copied) {
            std::memset(source.data(), 0xee, bytes);
            sources_.erase(block);
        }
        if (result == SendResult::in_flight)
            ++flown_;
        if (result == SendResult::busy || result == SendResult::failed)
            sources_.erase(block);
        return result == SendResult::copied || result == SendResult::in_flight;
    }

    /// Everything that B receives, checked, and A's completions.
    void step(bool b_receives = true) {
        step_a();
        step_b(b_receives);
    }
    void step_a() {
        for (auto &link : links_a_) {
            link->progress();
            Completion completion;
            while (link->completed(completion)) {
                ++completions_;
                EXPECT_EQ(completion.peer, 1);
                EXPECT_EQ(sources_.erase(completion.header.block), 1U) << "completed twice, or never sent";
            }
        }
    }
    void step_b(bool b_receives) {
        for (auto &link : links_b_) {
            link->progress();
            Arrival arrival;
            while (b_receives && link->receive(0, arrival)) {
                bool right = true;
                for (size_t i = 0; i < arrival.header.bytes; ++i)
                    right &= arrival.data[i] == test::content(1, 0, arrival.header.block, i);
                EXPECT_TRUE(right) << "block " << arrival.header.block;
                ++seen_[arrival.header.block];
                link->release(arrival);
            }
        }
    }

    size_t outstanding() const {
        size_t sum = 0;
        for (const auto &link : links_a_)
            sum += link->outstanding();
        return sum;
    }

    /// Everything is acknowledged, and known here: what went astray is collected from the link that it was sent over,
    /// which had its turn before the other.
    bool idle() const { return outstanding() == 0 && completions_ == flown_; }

    Network network_;
    TestPaths paths_a_{network_, kA};
    TestPaths paths_b_{network_, kB};
    std::unique_ptr<Rails> a_;
    std::unique_ptr<Rails> b_;
    std::vector<std::unique_ptr<Link>> links_a_;
    std::vector<std::unique_ptr<Link>> links_b_;
    std::map<uint32_t, std::vector<std::byte>> sources_;
    std::map<uint32_t, int> seen_;
    int flown_ = 0;
    int completions_ = 0;
};

TEST_F(Failing, WhatALostLineTookArrivesOverTheOther) {
    start();
    uint32_t block = 0;
    size_t bytes = 0;
    const auto put = [&](int line) {  // small ones are copied, large ones are not
        const size_t size = block % 3 == 0 ? 500 : 60000;
        if (!send(line, block, size))
            return false;
        bytes += size;
        ++block;
        return true;
    };
    ASSERT_TRUE(wait_for([&] {
        put(0);
        step();
        return block == 20;
    }));
    ASSERT_TRUE(wait_for([&] {
        step();
        return idle();
    }));
    swallow(0, true);
    while (block < 35 && put(0)) {  // on a busy machine the window has room for fewer
    }
    ASSERT_GE(block, 22U);
    EXPECT_TRUE(wait_for([&] {
        step();
        return links_a_[0]->state(1) == LinkState::lost && links_b_[0]->state(0) == LinkState::lost;
    }));
    EXPECT_EQ(links_a_[0]->send(1, header_of(1, 0, 1), &block), SendResult::failed);
    EXPECT_TRUE(links_a_[0]->error(1).ok()) << links_a_[0]->error(1).sentence();
    EXPECT_EQ(links_a_[1]->state(1), LinkState::up);
    EXPECT_TRUE(wait_for([&] {
        step();
        return idle();
    }));
    EXPECT_EQ(completions_, flown_);
    EXPECT_TRUE(sources_.empty());
    for (uint32_t i = 0; i < block; ++i)
        EXPECT_GE(seen_[i], 1) << "block " << i;
    EXPECT_EQ(links_a_[0]->counters(1).bytes + links_a_[1]->counters(1).bytes, bytes) << "counted where delivered";
    EXPECT_GE(a_->failover_counters().resent, block - 20);
    EXPECT_EQ(a_->failover_counters().losses, 1U);

    swallow(0, false);
    EXPECT_TRUE(wait_for([&] {
        step();
        return links_a_[0]->state(1) == LinkState::up && links_b_[0]->state(0) == LinkState::up;
    })) << "it does not come back";
    const uint64_t before = links_a_[0]->counters(1).bytes;
    ASSERT_TRUE(put(0));
    for (int i = 0; i < 9 && put(0); ++i) {
    }
    EXPECT_TRUE(wait_for([&] {
        step();
        return idle();
    }));
    EXPECT_GT(links_a_[0]->counters(1).bytes, before);
    EXPECT_EQ(completions_, flown_);
    EXPECT_EQ(a_->failover_counters().returns, 1U);
}

TEST_F(Failing, ALineMayBeLostAndReturnManyTimes) {
    start();
    uint32_t block = 0;
    for (int round = 0; round < 4; ++round) {
        swallow(round % 2, true);
        for (int i = 0; i < 6; ++i)
            ASSERT_TRUE(send(round % 2, block++, 30000));
        EXPECT_TRUE(wait_for([&] {
            step();
            return idle();
        }));
        swallow(round % 2, false);
        EXPECT_TRUE(wait_for([&] {
            step();
            return links_a_[round % 2]->state(1) == LinkState::up && links_b_[round % 2]->state(0) == LinkState::up;
        }));
    }
    EXPECT_EQ(completions_, flown_);
    for (uint32_t i = 0; i < block; ++i)
        EXPECT_GE(seen_[i], 1);
}

TEST_F(Failing, APeerThatIsLateIsNotALostLine) {
    start();
    for (uint32_t block = 0; block < 5; ++block)
        ASSERT_TRUE(send(0, block, 60000));
    // It receives, and holds everything for long; its paths answer.
    EXPECT_FALSE(loses_while_held(2500ms));
    EXPECT_EQ(outstanding(), 5U);
    EXPECT_TRUE(wait_for([&] {
        step();
        return idle();
    }));
    EXPECT_EQ(a_->failover_counters().losses, 0U);
}

TEST_F(Failing, AProcessThatHasNoCoreForItsAnswersHasLostNoLine) {
    start();
    b_->drop_arrivals(0, true);
    {
        const std::lock_guard lock(network_.mutex);
        network_.silent = {0, 1};
        network_.starves = true;
    }
    for (uint32_t block = 0; block < 5; ++block)
        ASSERT_TRUE(send(0, block, 60000));
    EXPECT_FALSE(loses_while_held(1000ms));
    // It answers again, on one of them.
    {
        const std::lock_guard lock(network_.mutex);
        EXPECT_GT(network_.starves_ns, 0);
        network_.silent = {0};
        network_.starves = false;
        network_.starves_ns = 0;
    }
    EXPECT_TRUE(wait_for([&] {
        step();
        return idle();
    }));
    EXPECT_EQ(seen_.size(), 5U);
    EXPECT_EQ(a_->failover_counters().losses, 1U);
}

TEST_F(Failing, ALineIsNotLostWhereItsProcessAnsweredElsewhereOnce) {
    start();
    b_->drop_arrivals(0, true);
    {
        // It has a core when most of the timeout is over, answers on one line, and has to wait again.
        const std::lock_guard lock(network_.mutex);
        network_.silent = {0, 1};
        network_.starves = true;
        network_.moment_ns = 70'000'000;
    }
    for (uint32_t block = 0; block < 5; ++block)
        ASSERT_TRUE(send(0, block, 60000));
    EXPECT_FALSE(loses_while_held(1000ms));
    {
        const std::lock_guard lock(network_.mutex);
        EXPECT_GT(network_.starves_ns, 0);
        network_.starves = false;
        network_.starves_ns = 0;
    }
    EXPECT_TRUE(loses_while_held(20s)) << "now it does answer, and not over this line";
}

TEST_F(Failing, WhatWasHeardInASilenceSaysNothingOfTheNext) {
    constexpr double kTimeout = 1;
    start(2, 30, kTimeout);
    b_->drop_arrivals(0, true);
    {
        const std::lock_guard lock(network_.mutex);
        network_.silent = {0, 1};
    }
    ASSERT_TRUE(send(0, 0, 60000));
    ASSERT_TRUE(wait_for([&] {
        step(false);
        return paths_a_.silent_for(0, static_cast<int64_t>(kTimeout * 0.8e9));
    }));
    {
        const std::lock_guard lock(network_.mutex);
        paths_a_.answer_late(0);
        network_.starves = true;
        network_.starves_ns = now_ns();
    }
    ASSERT_EQ(links_a_[0]->state(1), LinkState::up);
    EXPECT_FALSE(loses_while_held(2500ms));
}

TEST_F(Failing, AConnectionThatStandsStillThoughItsPathAnswersIsLost) {
    start();
    b_->drop_arrivals(0, true);
    for (uint32_t block = 0; block < 5; ++block)
        ASSERT_TRUE(send(0, block, 60000));
    EXPECT_TRUE(wait_for([&] {
        step();
        return idle();
    }));
    EXPECT_EQ(seen_.size(), 5U);
    EXPECT_EQ(a_->failover_counters().losses, 1U);
}

TEST_F(Failing, DuplicatesOfAnEndedOperationAreAcknowledgedAsTheyCome) {
    start();
    ASSERT_TRUE(send(0, 0, 60000));
    ASSERT_TRUE(wait_for([&] {
        step();
        return idle();
    }));
    for (auto &link : links_b_)
        link->ended(-1, 1);
    ASSERT_TRUE(send(1, 0, 60000));
    EXPECT_TRUE(wait_for([&] {
        step(false);  // nobody takes it
        return idle();
    }));
    EXPECT_EQ(completions_, 2);
}

TEST_F(Failing, TheGuardAcknowledgesAndMendsWhileTheProgramComputes) {
    start();
    std::unique_ptr<Guard> guard;
    ASSERT_TRUE(Guard::start(*b_, guard).ok());
    paths_b_.on_word([&] { guard->hurry(); });
    // B has used what A sent, and its operation has ended; the acknowledgements are lost with the line.
    a_->drop_arrivals(0, true);
    for (uint32_t block = 0; block < 4; ++block)
        ASSERT_TRUE(send(0, block, 60000));
    ASSERT_TRUE(wait_for([&] {
        step();
        return seen_.size() == 4;
    }));
    b_->enter();
    for (auto &link : links_b_)
        link->ended(-1, 1);
    b_->leave();
    ASSERT_EQ(outstanding(), 4U);
    swallow(0, true);
    EXPECT_TRUE(wait_for([&] {
        step_a();  // B computes
        return idle();
    }));
    for (uint32_t block = 0; block < 4; ++block)
        EXPECT_EQ(seen_[block], 1) << "a duplicate was handed over";
    swallow(0, false);
    EXPECT_TRUE(wait_for([&] {
        step_a();
        return links_a_[0]->state(1) == LinkState::up;
    }));
    // Both may be in the rails again, one at a time.
    for (uint32_t block = 4; block < 40; ++block) {
        ASSERT_TRUE(wait_for([&] {
            step();
            return send(static_cast<int>(block % 2), block, 20000);
        }));
    }
    EXPECT_TRUE(wait_for([&] {
        step();
        return idle();
    }));
    EXPECT_EQ(completions_, flown_);
    paths_b_.on_word({});
    guard.reset();
}

TEST_F(Failing, WithEveryLineLostForTheDeadlineItIsAnErrorThatNamesThem) {
    start(2, 0.5);
    const std::unique_ptr<Link> patient = a_->link(0, 2, {-1, 1}, 30);  // another communicator's
    swallow(0, true);
    swallow(1, true);
    for (uint32_t block = 0; block < 4; ++block)
        ASSERT_TRUE(send(static_cast<int>(block % 2), block, 60000));
    EXPECT_TRUE(wait_for([&] {
        step();
        return !links_a_[0]->error(1).ok();
    }));
    EXPECT_TRUE(patient->error(1).ok()) << "each communicator has a deadline of its own";
    const std::string sentence = links_a_[0]->error(1).sentence();
    for (const char *part : {"rank 1", "on b", "line0 (no answer", "line1 (no answer", "240000 B"})
        EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
    swallow(0, false);
    EXPECT_TRUE(wait_for([&] {
        step();
        return idle();
    })) << "what waited does not go when a line returns";
    EXPECT_TRUE(links_a_[1]->error(1).ok()) << "one line is back";
}

TEST_F(Failing, ALineThatIsNotACommunicatorsIsNothingToIt) {
    start(2, 1);
    // FLX_LINKS of communicator 1 leaves line 1 out; communicator 2 has both.
    links_a_[1].reset();
    links_b_[1].reset();
    links_a_.resize(1);
    links_b_.resize(1);
    std::vector<std::unique_ptr<Link>> other_a;
    std::vector<std::unique_ptr<Link>> other_b;
    for (int line = 0; line < 2; ++line) {
        other_a.push_back(a_->link(line, 2, {-1, 1}, 1));
        other_b.push_back(b_->link(line, 2, {0, -1}, 1));
    }
    std::vector<std::byte> theirs(60000, std::byte{7});
    int came = 0;
    int completed = 0;
    const auto both = [&] {
        step();
        a_->progress();
        b_->progress();
        for (auto &link : other_a) {
            Completion completion;
            while (link->completed(completion))
                ++completed;
        }
        for (auto &link : other_b)
            for (Arrival arrival; link->receive(0, arrival); ++came)
                link->release(arrival);
    };
    const auto send_theirs = [&](int line, uint32_t block) {
        ChunkHeader header = header_of(1, block, theirs.size());
        header.comm = 2;
        return other_a[line]->send(1, header, theirs.data()) == SendResult::in_flight;
    };
    swallow(0, true);
    for (uint32_t block = 0; block < 3; ++block) {
        ASSERT_TRUE(send(0, block, 60000));
        ASSERT_TRUE(send_theirs(0, block));
    }
    EXPECT_TRUE(wait_for([&] {
        both();
        return completed == 3;
    })) << "chunks of a communicator with another line wait behind those of one without";
    EXPECT_EQ(came, 3);
    EXPECT_TRUE(send_theirs(1, 3)) << "it is kept from its line by the other one's chunks";
    EXPECT_TRUE(wait_for([&] {
        both();
        return completed == 4 && !links_a_[0]->error(1).ok();
    })) << "no error though its only line is lost";
    EXPECT_TRUE(wait_for([&] {
        both();
        return !links_b_[0]->error(0).ok();
    })) << "nor where nothing waits to be sent";
    EXPECT_TRUE(other_a[0]->error(1).ok()) << other_a[0]->error(1).sentence();
    const std::string sentence = links_a_[0]->error(1).sentence();
    for (const char *part : {"rank 1", "line0 (no answer", "line1 works, but is not among", "180000 B"})
        EXPECT_NE(sentence.find(part), std::string::npos) << sentence;
    EXPECT_EQ(seen_.size(), 0U);
    swallow(0, false);
    EXPECT_TRUE(wait_for([&] {
        both();
        return idle();
    }));
    EXPECT_EQ(seen_.size(), 3U);
}

TEST_F(Failing, AChunkFindsItsCommunicatorWhateverLineItCameBy) {
    start();
    links_b_[1].reset();  // B alone has dropped it, and A does not know yet
    links_b_.resize(1);
    const std::unique_ptr<Link> other = b_->link(1, 2, {0, -1}, 30);
    for (uint32_t block = 0; block < 4; ++block)
        ASSERT_TRUE(send(1, block, 60000));
    EXPECT_TRUE(wait_for([&] {
        other->progress();
        step();
        return idle();
    }));
    EXPECT_EQ(a_->failover_counters().losses, 0U);
    EXPECT_EQ(seen_.size(), 4U) << "acknowledged, and thrown away";
}

TEST_F(Failing, ALinkThatGoesTakesItsChunksAlong) {
    start();
    swallow(0, true);
    swallow(1, true);
    for (uint32_t block = 0; block < 6; ++block)
        ASSERT_TRUE(send(0, block, block % 2 == 0 ? 100 : 60000));
    ASSERT_TRUE(wait_for([&] {
        step();
        return links_a_[0]->state(1) == LinkState::lost;
    }));
    links_a_.clear();
    sources_.clear();  // the memory is gone: a sanitizer would see it read
    swallow(1, false);
    swallow(0, false);
    wait_for(
        [&] {
            a_->progress();
            step();
            return false;
        },
        1500ms);
    for (uint32_t block = 1; block < 6; block += 2)
        EXPECT_EQ(seen_.count(block), 0U) << "from memory that was given up";
}

}  // namespace
}  // namespace flx::ucx

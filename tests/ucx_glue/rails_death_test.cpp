// What a rail says when the process at its other end dies or stops. The peer is this program again, started anew so
// that UCX is initialised in it and not inherited.
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>

#include "ucx_glue/rails.h"

namespace flx::ucx {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kParent = 1;
constexpr uint64_t kChild = 2;
constexpr double kDeadlineS = 30;

RailSpec spec_of(const std::string &kind) {
    if (kind == "tcp")
        return {"lo", "lo", "tcp", false};
    return {"ucx-shm", "memory", "posix,cma", kind == "put"};
}

void write_text(int fd, const std::string &text) {
    uint64_t bytes = text.size();
    ASSERT_EQ(write(fd, &bytes, sizeof bytes), static_cast<ssize_t>(sizeof bytes));
    ASSERT_EQ(write(fd, text.data(), bytes), static_cast<ssize_t>(bytes));
}

std::string read_text(int fd) {
    uint64_t bytes = 0;
    if (read(fd, &bytes, sizeof bytes) != sizeof bytes)
        return {};
    std::string text(bytes, '\0');
    for (size_t got = 0; got < bytes;) {
        ssize_t more = read(fd, text.data() + got, bytes - got);
        if (more <= 0)
            return {};
        got += static_cast<size_t>(more);
    }
    return text;
}

bool wait_for(const std::function<bool()> &done, std::chrono::milliseconds limit) {
    auto end = std::chrono::steady_clock::now() + limit;
    while (!done()) {
        if (std::chrono::steady_clock::now() > end)
            return false;
        sched_yield();
    }
    return true;
}

ChunkHeader header_of(size_t bytes) {
    ChunkHeader header{};
    header.comm = 1;
    header.cells = 1;
    header.bytes = static_cast<uint32_t>(bytes);
    return header;
}

/// The other process: gives chunks back, or keeps them (`how` is `hold`), until it is killed or its parent is gone.
/// `stop`: stops while it connects.
int run_peer(const std::string &kind, const std::string &how) {
    RailSpec spec = spec_of(kind);
    auto rails = Rails::open({&spec, 1}, kChild, {});
    write_text(STDOUT_FILENO, rails->address(0));
    std::string address = read_text(STDIN_FILENO);
    if (!rails->connect(0, 0, kParent, address).ok())
        return 1;
    auto link = rails->link(0, 1, {0, -1}, kDeadlineS);
    std::byte hello{1};
    if (link->send(0, header_of(1), &hello) != SendResult::copied)
        return 1;
    pid_t parent = getppid();
    if (how == "stop") {
        const auto stop = std::chrono::steady_clock::now() + std::chrono::microseconds(getpid() % 8 * 250);
        while (std::chrono::steady_clock::now() < stop)
            link->progress();
        raise(SIGSTOP);
    }
    while (getppid() == parent) {
        link->progress();
        Arrival arrival;
        if (link->receive(0, arrival) && how != "hold")
            link->release(arrival);
        sched_yield();
    }
    return 0;
}

class RailDeath : public ::testing::TestWithParam<const char *> {
  protected:
    void spawn(const char *how, const RailOptions &options) {
        int to_child[2];
        int from_child[2];
        ASSERT_EQ(pipe(to_child), 0);
        ASSERT_EQ(pipe(from_child), 0);
        child_ = fork();
        ASSERT_GE(child_, 0);
        if (child_ == 0) {
            dup2(to_child[0], STDIN_FILENO);
            dup2(from_child[1], STDOUT_FILENO);
            for (int fd : {to_child[0], to_child[1], from_child[0], from_child[1]})
                close(fd);
            execl("/proc/self/exe", "peer", "--peer", GetParam(), how, nullptr);
            _exit(127);
        }
        close(to_child[0]);
        close(from_child[1]);
        RailSpec spec = spec_of(GetParam());
        rails_ = Rails::open({&spec, 1}, kParent, options);
        ASSERT_EQ(rails_->count(), 1);
        std::string address = read_text(from_child[0]);
        ASSERT_FALSE(address.empty());
        write_text(to_child[1], rails_->address(0));
        ASSERT_TRUE(rails_->connect(0, 1, kChild, address).ok());
        link_ = rails_->link(0, 1, {-1, 1}, kDeadlineS);
        close(to_child[1]);
        close(from_child[0]);
    }

    void start(bool hold, const RailOptions &options = {}) {
        spawn(hold ? "hold" : "release", options);
        ASSERT_TRUE(wait_for(
            [&] {
                link_->progress();
                Arrival arrival;
                if (!link_->receive(1, arrival))
                    return false;
                link_->release(arrival);
                return true;
            },
            10s))
            << "the peer did not say hello";
    }

    void TearDown() override {
        if (child_ > 0) {
            kill(child_, SIGKILL);
            waitpid(child_, nullptr, 0);
        }
    }

    void kill_peer() {
        kill(child_, SIGKILL);
        waitpid(child_, nullptr, 0);
        child_ = -1;
    }

    void expect_error() {
        EXPECT_TRUE(wait_for(
            [&] {
                link_->progress();
                return !link_->error(1).ok();
            },
            10s));
        Status status = link_->error(1);
        EXPECT_EQ(status.code(), FLX_ERR_LINK);
        EXPECT_EQ(status.fault(), Fault::rails_lost);
        EXPECT_NE(status.sentence().find(link_->name()), std::string::npos) << status.sentence();
        EXPECT_NE(status.sentence().find("rank 1"), std::string::npos) << status.sentence();
        std::cout << status.sentence() << "\n";
        EXPECT_EQ(link_->send(1, header_of(data_.size()), data_.data()), SendResult::failed);
    }

    void expect_quick_end() {
        auto begin = std::chrono::steady_clock::now();
        link_.reset();
        rails_.reset();
        EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
    }

    pid_t child_ = -1;
    std::unique_ptr<Rails> rails_;
    std::unique_ptr<Link> link_;
    std::vector<std::byte> data_ = std::vector<std::byte>(100000);
};

INSTANTIATE_TEST_SUITE_P(Transports, RailDeath, ::testing::Values("tcp", "put", "eager"),
                         [](const auto &info) { return std::string(info.param); });

TEST_P(RailDeath, WithChunksInFlightIsALinkError) {
    start(true);
    int taken = 0;
    EXPECT_TRUE(wait_for(
        [&] {
            if (link_->send(1, header_of(data_.size()), data_.data()) == SendResult::in_flight)
                ++taken;
            link_->progress();
            return taken == 5;
        },
        10s));
    kill_peer();
    expect_error();
    EXPECT_EQ(link_->outstanding(), 5u) << "nobody acknowledged them";
    EXPECT_EQ(link_->unacknowledged(1), 0U) << "they left the link, which is lost";
    Completion completion;
    EXPECT_FALSE(link_->completed(completion));
    expect_quick_end();
}

TEST_P(RailDeath, InTheMiddleOfAStreamIsALinkError) {
    start(false);
    auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(wait_for(
        [&] {
            if (child_ > 0 && std::chrono::steady_clock::now() - begin > 50ms)
                kill_peer();
            link_->progress();
            Completion completion;
            while (link_->completed(completion)) {
            }
            return link_->send(1, header_of(data_.size()), data_.data()) == SendResult::failed;
        },
        10s));
    expect_error();
    expect_quick_end();
}

TEST_P(RailDeath, WhileIdleIsALinkError) {
    start(false);
    kill_peer();
    expect_error();
    expect_quick_end();
}

TEST_P(RailDeath, AStoppedPeerIsLateAndNotAnError) {
    start(false);
    kill(child_, SIGSTOP);
    int taken = 0;
    auto send = [&] {  // puts wait for the peer to say where to
        if (taken < 10 && link_->send(1, header_of(data_.size()), data_.data()) == SendResult::in_flight)
            ++taken;
        link_->progress();
    };
    EXPECT_FALSE(wait_for(
        [&] {
            send();
            return !link_->error(1).ok();
        },
        4s))
        << link_->error(1).sentence();
    kill(child_, SIGCONT);
    EXPECT_TRUE(wait_for(
        [&] {
            send();
            return taken == 10 && link_->outstanding() == 0;
        },
        10s));
    EXPECT_EQ(link_->counters(1).chunks, static_cast<uint64_t>(taken));
}

TEST_P(RailDeath, ALinkMayGoWhileItsPeerIsStopped) {
    RailOptions options;
    options.window_bytes = 32 << 20;  // more than sockets hold: UCX still reads the source
    start(false, options);
    kill(child_, SIGSTOP);
    size_t bytes = 100000;
    void *source = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(source, MAP_FAILED);
    wait_for(
        [&] {
            for (int i = 0; i < 10; ++i)
                link_->send(1, header_of(bytes), source);
            link_->progress();
            return false;
        },
        200ms);
    auto begin = std::chrono::steady_clock::now();
    link_.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
    munmap(source, bytes);
    kill(child_, SIGCONT);
    wait_for(
        [&] {
            rails_->progress();
            return false;
        },
        200ms);
    expect_quick_end();
}

TEST_P(RailDeath, TheEndMayComeWhileAStoppedPeerConnects) {
    for (int i = 0; i < 12; ++i) {
        spawn("stop", {});
        if (HasFatalFailure())
            return;
        wait_for(
            [&] {
                link_->progress();
                return false;
            },
            std::chrono::milliseconds(i % 4 * 3));
        expect_quick_end();
        kill_peer();
    }
}

}  // namespace
}  // namespace flx::ucx

int main(int argc, char **argv) {
    if (argc == 4 && std::strcmp(argv[1], "--peer") == 0)
        return flx::ucx::run_peer(argv[2], argv[3]);
    ::testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}

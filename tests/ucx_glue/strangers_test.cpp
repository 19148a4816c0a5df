/// Who connects to a rail without being of the job: messages of unknown processes, and malformed ones of known ones,
/// change nothing and leave nothing behind.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "runtime/link/paths.h"
#include "tests/ucx_glue/traffic.h"
#include "ucx_glue/context.h"
#include "ucx_glue/quiet.h"
#include "ucx_glue/rails.h"
#include "ucx_glue/wire.h"

namespace flx::ucx {
namespace {

using test::Traffic;

constexpr uint64_t kA = 0xa11ce, kB = 0xb0b, kStranger = 0xbad;
constexpr double kDeadlineS = 30;
const RailSpec kTcp{"lo", "lo", "tcp", false};

/// Knows both processes of the job, and has nothing to say.
class JobPaths final : public Paths {
  public:
    [[nodiscard]] bool knows(uint64_t uid) const override { return uid == kA || uid == kB; }
    int add_path(uint64_t, const std::string &, const HostAddress &, const HostAddress &) override { return -1; }
    void ask_path(int) override {}
    [[nodiscard]] PathReport path_report(int) const override { return {}; }
    void ask_process(uint64_t) override {}
    [[nodiscard]] int64_t process_answered_ns(uint64_t) const override { return 0; }
    void vouch(uint64_t) override {}
    [[nodiscard]] int64_t process_silent_ns(uint64_t) const override { return 0; }
    [[nodiscard]] bool process_gone(uint64_t) const override { return false; }
    void tell(uint64_t, int, const void *, size_t) override {}
    bool hear(uint64_t &, std::string &) override { return false; }
    [[nodiscard]] bool has_words() const override { return false; }
    void on_word(std::function<void()>) override {}
};

/// A job of two processes, in one.
class Strangers : public ::testing::Test {
  protected:
    void SetUp() override {
        RailOptions options;
        options.paths = &paths_;
        a_ = Rails::open({&kTcp, 1}, kA, options);
        b_ = Rails::open({&kTcp, 1}, kB, options);
        ASSERT_TRUE(a_->count() == 1 && b_->count() == 1);
        ASSERT_TRUE(a_->connect(0, 1, kB, b_->address(0)).ok());
        ASSERT_TRUE(b_->connect(0, 0, kA, a_->address(0)).ok());
        link_a_ = a_->link(0, 1, {-1, 1}, kDeadlineS);
        link_b_ = b_->link(0, 1, {0, -1}, kDeadlineS);
    }

    /// Chunks of both sizes in both directions, each looked at byte by byte.
    void expect_traffic() {
        const size_t window = RailOptions().window_bytes;
        Traffic ab(*link_a_, 1, 0, 1, {.chunks = 60, .window = window});
        Traffic ba(*link_b_, 1, 1, 0, {.chunks = 60, .window = window});
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (!(ab.done() && ba.done()) && ab.errors() + ba.errors() == 0 && std::chrono::steady_clock::now() < end) {
            ab.step();
            ba.step();
            link_a_->progress();
            link_b_->progress();
            sched_yield();
        }
        EXPECT_TRUE(ab.done() && ba.done()) << "a: " << ab.state() << "; b: " << ba.state();
        EXPECT_EQ(ab.errors() + ba.errors(), 0U);
    }

    JobPaths paths_;
    std::unique_ptr<Rails> a_, b_;
    std::unique_ptr<Link> link_a_, link_b_;
};

/// Somebody who found out a worker's address, and speaks UCX.
class Stranger {
  public:
    explicit Stranger(const std::string &address) {
        EXPECT_TRUE(context_.open(kTcp, {}).ok());
        ucp_ep_params_t params{};
        params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
        params.address = reinterpret_cast<const ucp_address_t *>(address.data() + sizeof(LineAddress));
        params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
        EXPECT_EQ(ucp_ep_create(context_.worker, &params, &endpoint_), UCS_OK);
    }
    ~Stranger() {
        ucp_request_param_t param{};
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = UCP_EP_CLOSE_FLAG_FORCE;
        if (const ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint_, &param); UCS_PTR_IS_PTR(request))
            ucp_request_free(request);
        context_.close();
    }
    /// Until it has left, with `meanwhile` called.
    void say(unsigned id, const void *header, size_t header_bytes, const void *data, size_t bytes,
             const std::function<void()> &meanwhile, unsigned how = UCP_AM_SEND_FLAG_EAGER) {
        ucp_request_param_t param{};
        param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = how;
        const ucs_status_ptr_t request = ucp_am_send_nbx(endpoint_, id, header, header_bytes, data, bytes, &param);
        ASSERT_FALSE(UCS_PTR_IS_ERR(request));
        ucp_worker_progress(context_.worker);
        meanwhile();
        while (request != nullptr && ucp_request_check_status(request) == UCS_INPROGRESS) {
            ucp_worker_progress(context_.worker);
            meanwhile();
        }
        if (request != nullptr)
            ucp_request_free(request);
    }

  private:
    Context context_;
    ucp_ep_h endpoint_ = nullptr;
};

/// UCX's own buffers grow a little; sanitizers keep what was freed.
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kMostGrowth = size_t{1} << 40;
#else
constexpr size_t kMostGrowth = 2 << 20;
#endif

size_t resident_bytes() {
    size_t pages = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> pages >> resident;
    return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

/// Whole messages of every kind, by processes that nobody was told of: each by another.
TEST_F(Strangers, UnknownProcessesAreNotHeard) {
    expect_traffic();
    Stranger stranger(b_->address(0));
    std::vector<std::byte> data(64 << 10);
    uint64_t uid = kStranger;
    const auto flood = [&](int rounds) {
        const auto say = [&](unsigned id, const auto &wire, size_t bytes) {
            stranger.say(id, &wire, sizeof wire, data.data(), bytes, [&] { link_b_->progress(); });
        };
        for (int i = 0; i < rounds; ++i) {
            ++uid;
            ChunkWire chunk{};
            chunk.uid = uid;
            chunk.number = static_cast<uint32_t>(i);
            chunk.slot = kNoSlot;
            chunk.header.comm = i % 2 == 0 ? 1 : 77;
            chunk.header.cells = 1;
            chunk.header.bytes = i % 16 == 0 ? 60'000 : 100;
            stranger.say(kChunkMessage, &chunk, kChunkWireBytes, data.data(), chunk.header.bytes,
                         [&] { link_b_->progress(); });
            say(kAckMessage, AckWire{uid, 4, 0}, 16);
            say(kRingRequestMessage, RingRequestWire{uid}, 0);
            say(kRingGrantMessage, RingGrantWire{uid, 0x1000, 4, 4096}, 200);
            say(kEchoMessage, EchoWire{uid, 500, 0}, 500);
            say(kUpMessage, RingRequestWire{uid}, 0);
            RelayWire relay{};
            relay.from = uid;
            relay.to = i % 2 == 0 ? kB : kA;
            relay.hop = uid;
            relay.line = RelayWire::kAnyLine;
            relay.header.bytes = 1000;
            say(kRelayMessage, relay, 1000);
        }
    };
    flood(100);
    const size_t before = resident_bytes();
    flood(1500);
    EXPECT_LT(resident_bytes(), before + kMostGrowth);
    EXPECT_EQ(b_->failover_counters().relayed, 0U);
    expect_traffic();
}

/// In the name of a process that is known: lengths that do not fit, counts past the end, places that do not exist.
TEST_F(Strangers, MalformedMessagesAreDropped) {
    expect_traffic();
    Stranger stranger(b_->address(0));
    std::vector<std::byte> data(64 << 10);
    std::mt19937 chance(7);
    const auto flood = [&](int rounds) {
        for (int i = 0; i < rounds; ++i) {
            const auto say = [&](unsigned id, const void *header, size_t header_bytes, size_t bytes) {
                stranger.say(id, header, header_bytes, data.data(), bytes, [&] { link_b_->progress(); });
            };
            // Headers of the wrong length, for every kind.
            std::array<std::byte, 256> noise{};
            for (std::byte &byte : noise)
                byte = static_cast<std::byte>(chance());
            std::memcpy(noise.data(), &kA, sizeof kA);
            for (unsigned id = 0; id < kMessageIds; ++id) {
                constexpr size_t kNone[] = {1, 7, 9, 15, 17, 23, 25, 33, 59, 61, 63, 85, 95, 200};
                say(id, noise.data(), kNone[chance() % std::size(kNone)], chance() % 300);
            }
            ChunkWire chunk{};
            chunk.uid = kA;
            chunk.slot = kNoSlot;
            chunk.header.comm = 1;
            chunk.header.bytes = 100;
            say(kChunkMessage, &chunk, kChunkWireBytes, 99);
            chunk.acks = kRidingAcks + 1;
            say(kChunkMessage, &chunk, sizeof chunk, 100);
            // Payload that is only announced: a rail that took it for data would read what is not there.
            chunk.acks = 0;
            stranger.say(
                kChunkMessage, &chunk, kChunkWireBytes, data.data(), 100, [&] { link_b_->progress(); },
                UCP_AM_SEND_FLAG_RNDV);
            // Several together: one that is longer than the message, one with too many acknowledgements, one in a place
            // of which nothing is known.
            for (int fault = 0; fault < 3; ++fault) {
                ChunkWire one{};
                one.uid = kA;
                one.slot = fault == 2 ? 3 : kNoSlot;
                one.acks = fault == 1 ? kRidingAcks + 1 : 0;
                one.header.comm = 1;
                one.header.bytes = fault == 0 ? 0x7fffffff : 8;
                std::memcpy(data.data(), &one, kChunkWireBytes);
                say(kChunksMessage, nullptr, 0, kChunkWireBytes + 8);
                say(kChunksMessage, nullptr, 0, kChunkWireBytes - 1);
            }
            const AckWire acks{kA, kAcksPerMessage + 1, 0};
            say(kAckMessage, &acks, sizeof acks, 4 * (kAcksPerMessage + 1));
            const AckWire short_acks{kA, 8, 0};
            say(kAckMessage, &short_acks, sizeof short_acks, 28);
            const RingGrantWire grant{kA, 0, 0, 0};
            say(kRingGrantMessage, &grant, sizeof grant, 5000);
            const EchoWire echo{kA, 600, 0};
            say(kEchoMessage, &echo, sizeof echo, 500);
            // Acknowledgements of chunks that were never sent.
            const AckWire early{kA, 64, 0};
            for (size_t at = 0; at < 64; ++at)
                std::memcpy(data.data() + 4 * at, noise.data() + at, 4);
            say(kAckMessage, &early, sizeof early, 256);
        }
    };
    flood(50);
    const size_t before = resident_bytes();
    flood(700);
    EXPECT_LT(resident_bytes(), before + kMostGrowth);
    expect_traffic();
}

/// Bytes that are no UCX, at the ports where workers listen.
TEST_F(Strangers, NoiseAtTheRailsPortsIsHarmless) {
    expect_traffic();
    std::vector<sockaddr_in> ports;
    for (int fd = 0; fd < 1024; ++fd) {
        sockaddr_in address{};
        socklen_t length = sizeof address;
        int listens = 0;
        socklen_t size = sizeof listens;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0 &&
            getsockname(fd, reinterpret_cast<sockaddr *>(&address), &length) == 0 && address.sin_family == AF_INET)
            ports.push_back(address);
    }
    ASSERT_FALSE(ports.empty());
    std::mt19937 chance(7);
    for (int i = 0; i < 200; ++i) {
        for (const sockaddr_in &port : ports) {
            const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            ASSERT_EQ(connect(fd, reinterpret_cast<const sockaddr *>(&port), sizeof port), 0);
            std::vector<unsigned char> noise(chance() % 300);
            for (unsigned char &byte : noise)
                byte = static_cast<unsigned char>(chance());
            static_cast<void>(send(fd, noise.data(), noise.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
            link_a_->progress();
            link_b_->progress();
            close(fd);
        }
    }
    for (int i = 0; i < 1000; ++i) {
        link_a_->progress();
        link_b_->progress();
    }
    expect_traffic();
}

}  // namespace
}  // namespace flx::ucx

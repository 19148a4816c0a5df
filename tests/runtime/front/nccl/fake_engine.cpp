/// An engine for libflx_nccl.so's parts that needs no GPU: collectives on fake streams, with notes of what it did.
/// FLX_TEST_NCCL_FAIL=RANK: that rank cannot make its side; FLX_TEST_NCCL_BREAK=RANK: its third call fails;
/// FLX_TEST_NCCL_ROOM=N: calls wait while N are queued on their stream; FLX_TEST_NCCL_LITTLE=BYTES: it has little
/// memory, in which longer calls are slow; FLX_TEST_NCCL_SLOW=MS: each measurement takes
/// so long.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "runtime/front/nccl/engine.h"
#include "tests/runtime/front/nccl/fake_device.h"

namespace flx::nccl {
namespace {

/// As the library says it, by which the device of tests knows what to do.
std::string nccl_name_of(algorithms::Collective collective) {
    for (size_t kind = 0; kind < kServedKinds; ++kind)
        if (collective_of(static_cast<Kind>(kind)) == collective)
            return std::string(name_of(static_cast<Kind>(kind)));
    return "nothing that FLX serves";
}

int rank_named(const char *variable) {
    const char *text = std::getenv(variable);
    return text == nullptr ? -1 : std::atoi(text);
}

thread_local bool by_flx = false;
thread_local double bytes_of_call = 0;  ///< of the last one by FLX, which is measured first

/// FLX_TEST_NCCL_CLOSED=RANK: no peer can open that rank's memory; FLX_TEST_NCCL_BLIND=RANK: it opens none.
class FakeMemory final : public cuda::MemoryAccess {
  public:
    explicit FakeMemory(int rank) : rank_(rank) {}
    unsigned long long name_of(const void *memory) override { return reinterpret_cast<uintptr_t>(memory); }
    bool find(const void *memory, Allocation &found) override {
        found = {name_of(memory), static_cast<char *>(const_cast<void *>(memory)), SIZE_MAX / 2};
        return true;
    }
    Status offer(const Allocation & /*allocation*/, cuda::MemoryOffer & /*offer*/) override {
        return rank_ == rank_named("FLX_TEST_NCCL_CLOSED") ? fail(Fault::no_gpu, "as the test wishes") : Status();
    }
    void withdraw(cuda::MemoryOffer & /*offer*/) override {}
    Status open(const cuda::MemoryOffer & /*offer*/, cuda::OpenedMemory & /*opened*/) override {
        fake::note("opens " + std::to_string(rank_));
        return rank_ == rank_named("FLX_TEST_NCCL_BLIND") ? fail(Fault::no_memory, "as the test wishes") : Status();
    }

  private:
    int rank_;
};

class FakeLane final : public Lane {
  public:
    FakeLane(std::unique_ptr<Bootstrap> bootstrap, std::string id)
        : bootstrap_(std::move(bootstrap)),
          id_(std::move(id)),
          memory_(bootstrap_->rank()),
          shown_(memory_, bootstrap_->rank(), bootstrap_->size()) {
        ++fake::lanes();
    }
    ~FakeLane() override {
        if (queued_ != 0)
            fake::note("freed while it runs");
        fake::note("flx gone " + std::to_string(bootstrap_->rank()));
        --fake::lanes();
    }
    /// Not once it was closed, which takes the GPUs' part away.
    void abort() override {
        if (closed_)
            fake::note("aborted after it was closed");
        aborted_ = true;
    }

    [[nodiscard]] bool is_small() const override { return small_; }
    [[nodiscard]] bool slows(const Operation &operation, bool /*shown*/) const override {
        return small_ && operation.count * 4 > static_cast<size_t>(rank_named("FLX_TEST_NCCL_LITTLE"));
    }
    /// FLX_TEST_NCCL_LEAVES: collectives leave outputs of their peers alone.
    [[nodiscard]] bool writes_outputs(const Operation & /*operation*/) const override {
        return rank_named("FLX_TEST_NCCL_LEAVES") < 0;
    }
    [[nodiscard]] bool slows_message(uint64_t bytes) const override {
        return small_ && bytes > static_cast<uint64_t>(rank_named("FLX_TEST_NCCL_LITTLE"));
    }
    Status enqueue(const Operation &operation, cudaStream_t stream, std::span<const cuda::Showing> shown) override {
        by_flx = true;
        bytes_of_call = static_cast<double>(operation.count * (operation.dtype == FLX_UINT8 ? 1 : 4));
        const int rank = bootstrap_->rank();
        if (rank == rank_named("FLX_TEST_NCCL_BREAK") && ++calls_ == 3)
            broken_ = fail(Fault::peer_died, "rank 1 (host nowhere) died; link nvlink");
        FLX_TRY(broken_);
        constexpr ncclDataType_t kMoved = ncclUint8;
        const ncclDataType_t type = operation.dtype == FLX_F32     ? ncclFloat32
                                    : operation.dtype == FLX_INT32 ? ncclInt32
                                                                   : kMoved;
        fake::Collective what{nccl_name_of(operation.collective), operation.in,  operation.out, operation.count, type,
                              operation.op == FLX_AVG ? 4 : 0,    operation.root};
        if (const int most = rank_named("FLX_TEST_NCCL_ROOM"); most > 0)
            fake::await_room(stream, static_cast<size_t>(most));
        fake::note((shown.empty() ? "flx " : "flx met ") + what.kind + " " + std::to_string(rank));
        const std::string key = "flx/" + id_ + "/" + std::to_string(sequence_++);
        ++queued_;
        fake::enqueue(stream, [this, key, what, rank]() mutable {
            // The window is one operation's at a time.
            if (running_.fetch_add(1) != 0)
                fake::note("two at once");
            if (!aborted_) {
                std::this_thread::sleep_for(std::chrono::microseconds(300));
                fake::meet(key, rank, bootstrap_->size(), &what, fake::carry_out, &aborted_);
            }
            running_.fetch_sub(1);
            --queued_;
        });
        return {};
    }
    /// As a kernel's: what this rank sends is there for its peer to take, whenever that comes.
    Status post(std::span<const cuda::Message> messages, cudaStream_t stream) override {
        by_flx = true;
        bytes_of_call = 0;
        const int rank = bootstrap_->rank();
        const auto name = [&](int from, int to, uint64_t number) {
            return id_ + "/" + std::to_string(from) + "-" + std::to_string(to) + "#" + std::to_string(number);
        };
        std::vector<std::pair<std::string, cuda::Message>> letters;
        for (const cuda::Message &message : messages) {
            bytes_of_call = std::max(bytes_of_call, static_cast<double>(message.bytes));
            fake::note((message.sends ? "flx Send " : "flx Recv ") + std::to_string(rank));
            letters.emplace_back(message.sends ? name(rank, message.peer, sent_[message.peer]++)
                                               : name(message.peer, rank, received_[message.peer]++),
                                 message);
        }
        fake::enqueue(stream, [letters] {
            for (const auto &[key, message] : letters)
                if (message.sends)
                    fake::put_letter(key, {message.memory, message.bytes});
            for (const auto &[key, message] : letters)
                if (!message.sends)
                    fake::take_letter(key, {message.memory, message.bytes});
        });
        return {};
    }
    /// Every output is an allocation of its own.
    Status expect_shown() override { return {}; }
    void show(const Operation &operation, bool frozen, cuda::Showing &mine) override {
        shown_.show(static_cast<char *>(operation.out), 1, frozen, mine);
    }
    Status open_shown(std::span<const cuda::Showing> all) override { return shown_.open(all); }
    void settle_shown(std::span<const cuda::Showing> all, bool opened) override { shown_.settle(all, opened); }
    void close_shown() override { shown_.close(); }
    Status failure() override { return broken_; }
    void close() override {
        closed_ = true;
        if (bootstrap_->barrier().ok())
            fake::note("flx closed " + std::to_string(bootstrap_->rank()));
    }

  private:
    std::unique_ptr<Bootstrap> bootstrap_;
    std::string id_;
    FakeMemory memory_;
    cuda::ShownMemory shown_;
    bool small_ = rank_named("FLX_TEST_NCCL_LITTLE") >= 0;
    uint64_t sequence_ = 0;
    std::array<uint64_t, kMaxRanks> sent_{}, received_{};
    int calls_ = 0;
    Status broken_;
    std::atomic<int> running_{0};
    std::atomic<int> queued_{0};
    std::atomic<bool> aborted_{false};
    std::atomic<bool> closed_{false};
};

/// FLX takes 5 us and 20 bytes a nanosecond, NCCL 10 us and 40: as good as each other at 200 KB.
class FakeEngine final : public Engine {
  public:
    std::string why_none() override { return {}; }
    Status make(std::unique_ptr<Bootstrap> bootstrap, const Config & /*config*/, int /*device*/,
                std::unique_ptr<Lane> &result) override {
        static std::atomic<uint64_t> next{1};
        const uint64_t mine = next++;
        std::vector<uint64_t> all(bootstrap->size());
        FLX_TRY(bootstrap->allgather(&mine, sizeof mine, all.data()));
        if (bootstrap->rank() == rank_named("FLX_TEST_NCCL_FAIL"))
            return fail(Fault::no_memory, "this rank cannot, as the test wishes");
        result = std::make_unique<FakeLane>(std::move(bootstrap), std::to_string(all[0]));
        return {};
    }
    Status make_event(int /*device*/, Event &event) override {
        event = fake::make_event();
        return {};
    }
    void free_event(Event /*event*/) override {}
    Status make_stream(int /*device*/, cudaStream_t &stream) override {
        stream = fake::make_stream();
        return {};
    }
    void free_stream(int /*device*/, cudaStream_t stream) override {
        if (stream != nullptr)
            fake::free_stream(stream);
    }
    Status record(Event event, cudaStream_t stream, bool /*external*/) override {
        fake::record(static_cast<fake::Event *>(event), stream);
        return {};
    }
    Status wait(Event event, cudaStream_t stream, bool /*external*/) override {
        fake::wait(static_cast<fake::Event *>(event), stream);
        return {};
    }
    bool ended(Event event) override { return event == nullptr || fake::ended(static_cast<fake::Event *>(event)); }
    Status look_at(cudaStream_t stream, Stream &found) override {
        found = {reinterpret_cast<uintptr_t>(stream), 0};
        return {};
    }
    bool has_work(cudaStream_t /*stream*/) override { return false; }
    Status open_bench(int /*device*/, size_t bytes, Bench &bench) override {
        constexpr size_t kMemory = size_t{1} << 20;
        if (bytes > kMemory)
            return fail(Fault::no_memory, "no memory");
        bench = {std::calloc(bytes, 1), std::calloc(bytes, 1), bytes, fake::make_stream()};
        return {};
    }
    void close_bench(int /*device*/, Bench &bench) override {
        std::free(bench.in);
        std::free(bench.out);
        if (bench.stream != nullptr)
            fake::free_stream(bench.stream);
        bench = {};
    }
    Status time(const Bench &bench, int /*device*/, int /*warm*/, int /*turns*/, const std::function<Status()> &call,
                double &us) override {
        by_flx = false;
        FLX_TRY(call());
        if (!fake::synchronize(bench.stream))
            return fail(Fault::no_memory, "a call did not end");
        if (const int slow = rank_named("FLX_TEST_NCCL_SLOW"); slow > 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(slow));
        us = by_flx ? 5 + bytes_of_call / 20e3 : 10 + bytes_of_call / 40e3;
        return {};
    }
    /// FLX_TEST_NCCL_PATIENCE_MS: where ranks are to be late.
    int64_t patience_ns() override {
        constexpr int64_t kMillisecond = 1'000'000;
        constexpr int64_t kLong = 10'000;
        const char *text = std::getenv("FLX_TEST_NCCL_PATIENCE_MS");
        return (text == nullptr ? kLong : std::atoll(text)) * kMillisecond;
    }
    void on_device(int /*device*/, const std::function<void()> &body) override { body(); }
    void stay_on(int /*device*/) override {}
};

}  // namespace

Engine &engine() {
    static auto *const only = new FakeEngine;
    return *only;
}

}  // namespace flx::nccl

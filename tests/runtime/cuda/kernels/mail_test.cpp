/// Messages between ranks in one process on one GPU, by the kernel that carries them, which needs no other process's
/// memory: through slots and straight into memory that the sender sees, long and short, every byte checked. Processes
/// that share a GPU run by turns, so this is where messages can be timed on one. Skips without a GPU. `time`: how long
/// they take both ways.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "runtime/cuda/protocol/mailbox.h"
#include "runtime/cuda/protocol/plan.h"
#include "tests/runtime/cuda/kernels/on_gpu.h"

namespace flx::cuda {
namespace {

constexpr uint64_t kMost = uint64_t{256} << 20;
constexpr uint64_t kStaging = uint64_t{224} << 20;
constexpr uint32_t kThreads = 512;
constexpr unsigned char kPoison = 0x5a;

uint32_t pattern(int from, uint64_t at) {
    return static_cast<uint32_t>(at * 2654435761U + static_cast<uint64_t>(from));
}

/// Each sends a part to every other one, and gets one from it.
class Ranks {
  public:
    Ranks(int ranks, uint32_t multiprocessors)
        : layout_(mailbox_for(kStaging, multiprocessors, ranks)), all_(static_cast<size_t>(ranks)) {
        int all_multiprocessors = 0;
        must(cudaDeviceGetAttribute(&all_multiprocessors, cudaDevAttrMultiProcessorCount, 0), "an attribute");
        // Those of all ranks run at once, two blocks to a multiprocessor.
        const auto peers = static_cast<uint32_t>(ranks) - 1;
        while (layout_.lanes > 1 && layout_.lanes * peers * layout_.ranks > static_cast<uint32_t>(all_multiprocessors))
            layout_.lanes /= 2;
        void *words = nullptr;
        must(cudaHostAlloc(&words, kWords * sizeof(uint64_t), cudaHostAllocMapped), "pinned memory");
        std::memset(words, 0, kWords * sizeof(uint64_t));
        words_ = static_cast<uint64_t *>(words);
        std::vector<uint32_t> values(kMost / sizeof(uint32_t));
        for (size_t r = 0; r < all_.size(); ++r) {
            Rank &rank = all_[r];
            rank.mailbox = memory(layout_.bytes());
            rank.in = memory(kMost);
            rank.out = memory(kMost);
            rank.dead = memory(sizeof(uint32_t));
            must(cudaMemset(rank.mailbox, 0, MailboxLayout::kHead), "clearing");
            must(cudaMemset(rank.dead, 0, sizeof(uint32_t)), "clearing");
            for (size_t i = 0; i < values.size(); ++i)
                values[i] = pattern(static_cast<int>(r), i);
            must(cudaMemcpy(rank.in, values.data(), kMost, cudaMemcpyHostToDevice), "inputs");
            rank.make();
        }
    }
    Ranks(const Ranks &) = delete;
    Ranks &operator=(const Ranks &) = delete;
    ~Ranks() {
        for (const Rank &rank : all_)
            for (char *its : {rank.mailbox, rank.in, rank.out, rank.dead})
                cudaFree(its);
        cudaFreeHost(words_);
    }

    /// Microseconds of one of many calls in which each rank sends `bytes` in all.
    double time(uint64_t bytes, bool straight) {
        constexpr int kTurns = 5;
        constexpr int kCalls = 10;
        return best_time(all_, kTurns, kCalls, [&] { launch(part_of(bytes), straight); });
    }

    /// Elements that are not what was sent, or written into beside it.
    uint64_t wrong(uint64_t bytes, bool straight) {
        const uint64_t part = part_of(bytes);
        constexpr uint64_t kBeside = 4096;
        const uint64_t looked_at = std::min((all_.size() - 1) * part + kBeside, kMost);
        const uint64_t count = looked_at / sizeof(uint32_t);
        for (const Rank &rank : all_)
            must(cudaMemset(rank.out, 0, looked_at), "outputs");
        must(cudaDeviceSynchronize(), "what was cleared");
        launch(part, straight);
        uint64_t all = 0;
        std::vector<uint32_t> came(count);
        for (size_t r = 0; r < all_.size(); ++r) {
            must(cudaStreamSynchronize(all_[r].stream), "a kernel");
            must(cudaMemcpy(came.data(), all_[r].out, looked_at, cudaMemcpyDeviceToHost), "what came");
            for (uint64_t i = 0; i < count; ++i) {
                const uint64_t k = 1 + i * sizeof(uint32_t) / part;
                const auto from = static_cast<int>((r + all_.size() - k % all_.size()) % all_.size());
                all += came[i] != (k < all_.size() ? pattern(from, i) : 0) ? 1 : 0;
            }
        }
        return all;
    }

    /// Bytes in slots after a message from rank 0 to a rank 1 that waited for it, of all that `bytes` need; it is
    /// there.
    uint64_t through_slots(uint64_t bytes, bool straight) {
        const uint64_t slots = layout_.bytes() - MailboxLayout::kHead;
        must(cudaMemset(all_[1].mailbox + MailboxLayout::kHead, kPoison, slots), "slots");
        must(cudaMemset(all_[1].out, 0, bytes), "an output");
        must(cudaDeviceSynchronize(), "what was cleared");
        std::vector<uint32_t> before(layout_.lanes);
        for (uint32_t lane = 0; lane < layout_.lanes; ++lane)
            before[lane] = flag_of_rank_0(MailboxLayout::flag(MailboxLayout::Flag::offered, 1, lane));
        Mail receives = mail_of(1);
        (void)receives.add({all_[1].out, bytes, 0, false}, straight ? all_[1].out : nullptr);
        launch(receives);
        for (uint32_t lane = 0; straight && lane < layout_.lanes; ++lane)
            while (flag_of_rank_0(MailboxLayout::flag(MailboxLayout::Flag::offered, 1, lane)) == before[lane]) {
            }
        Mail sends = mail_of(0);
        (void)sends.add({all_[0].in, bytes, 1, true});
        launch(sends);
        must(cudaStreamSynchronize(all_[0].stream), "a sender");
        must(cudaStreamSynchronize(all_[1].stream), "a receiver");
        std::vector<uint32_t> came(bytes / sizeof(uint32_t));
        must(cudaMemcpy(came.data(), all_[1].out, bytes, cudaMemcpyDeviceToHost), "what came");
        for (uint64_t i = 0; i < came.size(); ++i)
            if (came[i] != pattern(0, i))
                return UINT64_MAX;
        std::vector<unsigned char> left(slots);
        must(cudaMemcpy(left.data(), all_[1].mailbox + MailboxLayout::kHead, slots, cudaMemcpyDeviceToHost), "slots");
        return slots - static_cast<uint64_t>(std::count(left.begin(), left.end(), kPoison));
    }

    [[nodiscard]] const MailboxLayout &layout() const { return layout_; }

  private:
    static constexpr size_t kWords = 8;
    struct Rank : Stream {
        char *mailbox = nullptr;
        char *in = nullptr;
        char *out = nullptr;
        char *dead = nullptr;
    };

    static char *memory(uint64_t bytes) {
        void *made = nullptr;
        must(cudaMalloc(&made, bytes), "memory");
        return static_cast<char *>(made);
    }
    [[nodiscard]] uint64_t part_of(uint64_t bytes) const {
        return std::max<uint64_t>(bytes / (all_.size() - 1) / kGrain, 1) * kGrain;
    }

    void launch(uint64_t part, bool straight) {
        const auto ranks = static_cast<int>(all_.size());
        for (int r = 0; r < ranks; ++r) {
            const Rank &mine = all_[static_cast<size_t>(r)];
            Mail mail = mail_of(r);
            for (int k = 1; k < ranks; ++k) {
                const uint64_t at = static_cast<uint64_t>(k - 1) * part;
                char *out = mine.out + at;
                (void)mail.add({mine.in + at, part, (r + k) % ranks, true});
                (void)mail.add({out, part, (r + ranks - k) % ranks, false}, straight ? out : nullptr);
            }
            launch(mail);
        }
    }
    [[nodiscard]] Mail mail_of(int rank) const {
        Mail mail;
        mail.layout = layout_;
        mail.job.rank = rank;
        mail.job.ranks = static_cast<int>(all_.size());
        for (size_t peer = 0; peer < all_.size(); ++peer)
            mail.job.windows[peer] = all_[peer].mailbox;
        mail.job.abort = reinterpret_cast<uint32_t *>(words_);
        mail.job.stuck = reinterpret_cast<uint32_t *>(words_ + 1);
        mail.job.dead = reinterpret_cast<uint32_t *>(all_[static_cast<size_t>(rank)].dead);
        mail.refused = words_ + 2;
        return mail;
    }
    void launch(Mail &mail) const {
        void *arguments[] = {&mail};
        must(cudaLaunchKernel(mail_kernel(), dim3(mail.ways * mail.lanes), dim3(kThreads), arguments, 0,
                              all_[static_cast<size_t>(mail.job.rank)].stream),
             "a launch");
    }
    /// As long as it runs, nothing may wait for all of the GPU.
    [[nodiscard]] uint32_t flag_of_rank_0(uint64_t at) const {
        uint32_t value = 0;
        must(cudaMemcpyAsync(&value, all_[0].mailbox + at, sizeof value, cudaMemcpyDeviceToHost, all_[0].stream),
             "a flag");
        must(cudaStreamSynchronize(all_[0].stream), "a flag");
        return value;
    }

    MailboxLayout layout_;
    std::vector<Rank> all_;
    uint64_t *words_ = nullptr;
};

uint64_t compare(Ranks &ranks) {
    uint64_t wrong = 0;
    for (const uint64_t bytes :
         {uint64_t{16}, uint64_t{70'000}, MailboxLayout::kLeastStraight, uint64_t{7'000'016}, uint64_t{64} << 20})
        for (const bool straight : {false, true, true, false})
            wrong += ranks.wrong(bytes, straight);
    return wrong;
}

/// Only labels are in slots of a message that goes straight. Offers of the call before are none of the next one's.
bool goes_straight(Ranks &ranks) {
    constexpr uint64_t kBytes = uint64_t{8} << 20;
    const MailboxLayout &layout = ranks.layout();
    const uint64_t labels = uint64_t{layout.lanes} * sizeof(uint64_t);
    const uint64_t room = uint64_t{layout.lanes} * MailboxLayout::kSlots * layout.slot_bytes;
    bool right = true;
    for (const bool straight : {true, false, true}) {
        const uint64_t bytes = ranks.through_slots(kBytes, straight);
        const bool its = straight ? bytes <= labels : bytes > std::min(kBytes, room) / 2 && bytes != UINT64_MAX;
        if (!its)
            fmt::print("wrong: {} bytes through slots of a message that goes {}\n", bytes,
                       straight ? "straight" : "through them");
        right = right && its;
    }
    return right;
}

void show_times(Ranks &ranks) {
    fmt::print("MiB that each rank sends, us through slots and straight, their ratio\n");
    for (uint64_t bytes = uint64_t{1} << 20; bytes <= kMost; bytes *= 2) {
        const double slots = ranks.time(bytes, false);
        const double straight = ranks.time(bytes, true);
        fmt::print("{:4} {:8.1f} {:8.1f} {:5.2f}\n", bytes >> 20, slots, straight, slots / straight);
    }
}

}  // namespace
}  // namespace flx::cuda

int main(int argc, char **argv) {
    if (!flx::cuda::has_gpu())
        return flx::cuda::kSkipped;
    uint64_t wrong = 0;
    for (const int ranks : {2, 3, 4}) {
        for (const uint32_t multiprocessors : {32U, 128U}) {
            flx::cuda::Ranks all(ranks, multiprocessors);
            const uint64_t here = flx::cuda::compare(all) + (flx::cuda::goes_straight(all) ? 0 : 1);
            fmt::print("{}: {} ranks, {} lanes of slots of {} B, {} wrong\n", here == 0 ? "right" : "wrong", ranks,
                       all.layout().lanes, all.layout().slot_bytes, here);
            std::fflush(stdout);
            if (argc > 1 && std::string_view(argv[1]) == "time")
                flx::cuda::show_times(all);
            wrong += here;
        }
    }
    return wrong == 0 ? 0 : 1;
}

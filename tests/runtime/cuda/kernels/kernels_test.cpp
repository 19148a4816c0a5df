/// The kernels of two ranks in one process on one GPU, which needs no other process's memory: wherever inputs and
/// outputs begin, and whichever way is taken, the bytes are those of tiles on lines of 16 bytes, and nothing beside
/// them is written. Skips without a GPU. `time`: also how long they take, 4 bytes beside a line and on it, by tiles and
/// by the ways that calls between two take.
#include "runtime/cuda/protocol/kernels.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "runtime/cuda/protocol/plan.h"
#include "runtime/elements/dtype.h"
#include "tests/mpi/random.h"
#include "tests/runtime/cuda/kernels/on_gpu.h"

namespace flx::cuda {
namespace {

constexpr int kRanks = 2;
constexpr uint64_t kMost = uint64_t{64} << 20;
constexpr uint64_t kBeside = 256;  ///< bytes before and behind a buffer, that must stay
constexpr char kUntouched = 0x5a;
constexpr uint64_t kStaging = uint64_t{224} << 20;

struct Case {
    Collective collective;
    flx_dtype_t type;
    bool direct;
    uint64_t bytes;                     ///< of the whole vector
    std::array<uint64_t, kRanks> in{};  ///< bytes beside a line
    uint64_t out = 0;
    flx_op_t op = FLX_SUM;
    bool in_place = false;  ///< the input is where the output will be
};

enum class Ways : uint8_t {
    tiles,
    bulk,     ///< where there are bulk copies, else tiles
    as_calls  ///< as calls take them: packets and lines for what is short
};

class Ranks {
  public:
    Ranks(uint32_t blocks, Ways ways) : layout_(window_for(kStaging, kRanks)) {
        constexpr int kHopper = 90;
        cudaFuncAttributes attributes{};
        must(cudaFuncGetAttributes(&attributes, kernels_of(FLX_F32, FLX_SUM).bulk), "a kernel's attributes");
        limits_.blocks = blocks;
        limits_.line_bytes = ways == Ways::as_calls ? uint64_t{1} << 20 : 0;
        limits_.engine_bytes = UINT64_MAX;
        limits_.bulk = ways != Ways::tiles && attributes.binaryVersion >= kHopper;
        void *words = nullptr;
        must(cudaHostAlloc(&words, 64, cudaHostAllocMapped), "pinned memory");
        std::memset(words, 0, 64);
        words_ = static_cast<uint32_t *>(words);
        for (Rank &rank : all_) {
            for (char **memory : {&rank.window, &rank.in, &rank.out}) {
                void *made = nullptr;
                must(cudaMalloc(&made, memory == &rank.window ? layout_.bytes() : kMost + 2 * kBeside), "memory");
                *memory = static_cast<char *>(made);
            }
            must(cudaMemset(rank.window, 0, layout_.slots()), "clearing");
            rank.make();
        }
        std::vector<uint16_t> values(kMost / 2);
        flx::test::Random random(7);
        // Small numbers in any type, bytes of e4m3, halves and bfloat16 alike; some are anything else that there is.
        for (uint16_t &value : values)
            value =
                static_cast<uint16_t>(random.below(16) == 0 ? random.below(0x10000) : 0x3030 + random.below(0x0808));
        values_.resize(kMost);
        std::memcpy(values_.data(), values.data(), kMost);
    }

    /// What comes out on all ranks, between what lies beside it.
    std::vector<char> run(const Case &what) {
        const uint64_t out_bytes = output(what) + 2 * kBeside;
        for (size_t r = 0; r < kRanks; ++r) {
            must(cudaMemset(all_[r].out, kUntouched, out_bytes + what.out), "outputs");
            must(cudaMemcpy(input(what, r), values_.data() + 64 * r, what.bytes, cudaMemcpyHostToDevice), "inputs");
        }
        must(cudaDeviceSynchronize(), "what was copied");
        launch(what);
        std::vector<char> all;
        for (size_t r = 0; r < kRanks; ++r) {
            must(cudaStreamSynchronize(all_[r].stream), "a kernel");
            if (what.collective == Collective::reduce && r != 0)
                continue;
            std::vector<char> its(out_bytes);
            must(cudaMemcpy(its.data(), all_[r].out + what.out, out_bytes, cudaMemcpyDeviceToHost), "what came out");
            all.insert(all.end(), its.begin(), its.end());
        }
        return all;
    }

    /// Microseconds of one of many.
    double time(const Case &what) {
        constexpr int kTurns = 4;
        constexpr int kCalls = 20;
        return best_time(all_, kTurns, kCalls, [&] { launch(what); });
    }

    [[nodiscard]] Way way(const Case &what) const { return plan(what).way; }

  private:
    struct Rank : Stream {
        char *window = nullptr;
        char *in = nullptr;
        char *out = nullptr;
    };

    char *input(const Case &what, size_t rank) const {
        return what.in_place ? all_[rank].out + kBeside + what.out : all_[rank].in + kBeside + what.in[rank];
    }
    static uint64_t output(const Case &what) {
        return what.collective == Collective::reduce_scatter_block ? what.bytes / kRanks : what.bytes;
    }

    [[nodiscard]] Plan plan(const Case &what) const {
        return plan_of(what.collective, what.bytes, kRanks, Outputs{what.direct, what.in_place, true}, layout_,
                       limits_);
    }

    void launch(const Case &what) {
        const Plan plan = this->plan(what);
        const Kernels kernels = reduces(what.collective) ? kernels_of(what.type, what.op) : move_kernels();
        for (int r = 0; r < kRanks; ++r) {
            Rank &mine = all_[static_cast<size_t>(r)];
            Job job;
            job.collective = what.collective;
            job.rank = r;
            job.ranks = kRanks;
            job.direct = what.direct;
            job.flat = plan.flat;
            job.op = what.op;
            job.divisor = what.op == FLX_AVG ? kRanks : 1;
            job.in = input(what, static_cast<size_t>(r));
            if (what.collective == Collective::allgather)
                job.in += static_cast<uint64_t>(r) * plan.part_bytes;
            job.out = mine.out + kBeside + what.out;
            job.bytes = what.bytes;
            job.part_bytes = plan.part_bytes;
            job.tile_bytes = plan.tile_bytes;
            job.blocks = plan.blocks;
            job.layout = layout_;
            for (int peer = 0; peer < kRanks; ++peer) {
                job.windows[peer] = all_[static_cast<size_t>(peer)].window;
                job.outputs[peer] = all_[static_cast<size_t>(peer)].out + kBeside + what.out;
            }
            job.abort = words_;
            job.stuck = words_ + 1;
            job.dead = reinterpret_cast<uint32_t *>(mine.window + WindowLayout::kDead);
            void *arguments[] = {&job};
            const bool bulk = plan.way == Way::bulk;
            const void *kernel = bulk                       ? kernels.bulk
                                 : plan.way == Way::packets ? kernels.packets
                                 : plan.way == Way::lines   ? kernels.lines
                                 : job.on_lines()           ? kernels.exchange
                                                            : kernels.exchange_anywhere;
            const uint32_t shared = bulk ? bulk_launch().shared_bytes : 0;
            if (bulk)
                must(
                    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)),
                    "shared memory");
            must(cudaLaunchKernel(kernel, dim3(plan.blocks), dim3(bulk ? bulk_launch().threads : plan.threads),
                                  arguments, shared, mine.stream),
                 "a launch");
        }
    }

    WindowLayout layout_;
    Limits limits_;
    std::array<Rank, kRanks> all_;
    uint32_t *words_ = nullptr;
    std::vector<char> values_;
};

constexpr std::array kTypes = {FLX_F32, FLX_BF16, FLX_F8E4M3, FLX_F64};

/// `tiles`: whose bytes on lines are right.
int compare(Ranks &tiles, Ranks &ranks, std::string_view ways) {
    constexpr std::array kCompared = {Collective::allreduce, Collective::reduce_scatter_block, Collective::reduce,
                                      Collective::allgather};
    constexpr std::array kAllTypes = {FLX_F32, FLX_BF16, FLX_F8E4M3, FLX_F64, FLX_F16, FLX_F8E5M2, FLX_INT8, FLX_INT16};
    constexpr std::array kOps = {FLX_SUM, FLX_SUM, FLX_AVG, FLX_MAX};
    constexpr int kCases = 400;
    flx::test::Random random(11);
    int wrong = 0;
    int by_bulk = 0;
    for (int number = 0; number < kCases; ++number) {
        Case what{
            kCompared[random.below(kCompared.size())], kAllTypes[random.below(kAllTypes.size())], false, 0, {}, 0};
        what.direct = what.collective == Collective::allreduce && random.below(2) == 0;
        if (reduces(what.collective))
            what.op = kOps[random.below(kOps.size())];
        what.in_place = what.collective == Collective::allreduce && random.below(3) == 0;
        const uint64_t whole = kRanks * size_of(what.type);
        what.bytes = (1 + random.below(number % 4 == 0 ? uint64_t{4} << 20 : uint64_t{64} << 10)) / whole * whole;
        if (what.bytes == 0)
            continue;
        by_bulk += ranks.way(what) == Way::bulk ? 1 : 0;
        const std::vector<char> right = tiles.run(what);
        const bool as_tiles = ranks.run(what) == right;
        // The first is where elements lie on their own lines, others anywhere.
        const uint64_t step = number % 2 == 0 ? size_of(what.type) : 1;
        for (uint64_t &in : what.in)
            in = random.below(16) / step * step;
        what.out = random.below(16) / step * step;
        if (const std::vector<char> came = ranks.run(what); came != right || !as_tiles) {
            const auto first = std::mismatch(came.begin(), came.end(), right.begin()).first - came.begin();
            fmt::print(
                "wrong: {} of {} B, type {}, reduction {}, {}{}, {} on a line, inputs {} and {} bytes beside one, "
                "output "
                "{}: byte {} of what came out\n",
                name_of(what.collective), what.bytes, flx::name_of(what.type), static_cast<int>(what.op),
                what.direct ? "direct" : "by slots", what.in_place ? ", in place" : "", as_tiles ? "right" : "wrong",
                what.in[0], what.in[1], what.out, first - static_cast<std::ptrdiff_t>(kBeside));
            ++wrong;
        }
    }
    fmt::print("{}: {} cases by {}, {} of them by bulk copies, beside lines as tiles on lines, {} others\n",
               wrong == 0 ? "right" : "wrong", kCases, ways, by_bulk, wrong);
    return wrong;
}

void show_times(uint32_t blocks) {
    Ranks tiles(blocks, Ways::tiles);
    Ranks ranks(blocks, Ways::as_calls);
    fmt::print(
        "{} blocks a rank: us on a line of 16 bytes, 4 bytes beside one, their ratio, and tiles' time over the "
        "first\n",
        blocks);
    double gains = 0;
    int cells = 0;
    for (const Collective collective : {Collective::allreduce, Collective::reduce_scatter_block, Collective::reduce}) {
        for (const flx_dtype_t type : kTypes) {
            fmt::print("{:<22} {:<7}", name_of(collective), flx::name_of(type));
            for (const uint64_t mib : {1, 4, 8, 16, 32, 64}) {
                Case what{collective, type, collective == Collective::allreduce, mib << 20, {}, 0};
                const double by_tiles = tiles.time(what);
                const double on_line = ranks.time(what);
                what.in = {4, 4};
                what.out = 4;
                const double beside = ranks.time(what);
                fmt::print("  {} MiB {} {:.1f} {:.1f} {:.2f} {:.2f}", mib, name_of(ranks.way(what)), on_line, beside,
                           on_line / beside, by_tiles / on_line);
                if (ranks.way(what) != Way::bulk)
                    continue;
                gains += std::log(by_tiles / on_line);
                ++cells;
            }
            fmt::print("\n");
            std::fflush(stdout);
        }
    }
    fmt::print("geometric mean of the last over {} cells of bulk copies: {:.2f}\n", cells, std::exp(gains / cells));
}

}  // namespace
}  // namespace flx::cuda

int main(int argc, char **argv) {
    if (!flx::cuda::has_gpu())
        return flx::cuda::kSkipped;
    constexpr uint32_t kFew = 32;
    constexpr uint32_t kMany = 64;
    int wrong = 0;
    {
        using flx::cuda::Ranks;
        using flx::cuda::Ways;
        Ranks tiles(kFew, Ways::tiles);
        wrong = flx::cuda::compare(tiles, tiles, "tiles");
        Ranks bulk(kFew, Ways::bulk);
        wrong += flx::cuda::compare(tiles, bulk, "bulk copies");
        Ranks as_calls(kFew, Ways::as_calls);
        wrong += flx::cuda::compare(tiles, as_calls, "the ways of calls");
    }
    if (argc > 1 && std::string_view(argv[1]) == "time")
        for (const uint32_t blocks : {kFew, kMany})
            flx::cuda::show_times(blocks);
    return wrong == 0 ? 0 : 1;
}

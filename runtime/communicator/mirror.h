/// \file mirror.h
/// A call on GPU memory that GPUs do not carry out: memory of the host stands in for its buffers.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/cuda/memory/transfer.h"
#include "runtime/plan/pieces.h"

namespace flx {

/// Memory that mirrors of a communicator had, for its next ones: of fresh memory each page costs a fault. Not for
/// several threads at once.
class MirrorMemory {
  public:
    struct Block {
        std::unique_ptr<std::byte[]> at;
        size_t bytes = 0;
    };
    /// At least so many bytes. std::bad_alloc.
    Block take(size_t bytes);
    /// Keeps it, or frees it where much is kept already.
    void give(Block block) noexcept;

  private:
    std::vector<Block> kept_;
    size_t bytes_ = 0;
};

class Mirror {
  public:
    /// Who tells GPU memory from the host's, and copies between them.
    struct Gpu {
        bool (*owns)(const void *memory);
        Status (*copy_down)(std::span<const cuda::Transfer> transfers);
        Status (*copy_up)(std::span<const cuda::Transfer> transfers);
    };
    static const Gpu &cuda_gpu();

    /// Makes room for what the call reads and writes in GPU memory, and has its buffers be there. Both may be apart,
    /// and one of them in host memory. `memory` outlives it. std::bad_alloc, and the call is as it was.
    Mirror(Call &call, int ranks, int rank, MirrorMemory &memory, const Gpu &gpu = cuda_gpu());
    ~Mirror();
    Mirror(const Mirror &) = delete;
    Mirror &operator=(const Mirror &) = delete;

    /// Fetches what the call reads: before each time that it is carried out.
    Status load() const { return gpu_.copy_down(down_); }
    /// Puts what it wrote where it belongs: after each time.
    Status store() const { return gpu_.copy_up(up_); }

  private:
    /// Where GPU memory begins that a block of host memory stands for.
    struct Range {
        std::byte *begin = nullptr;
        std::byte *end = nullptr;  ///< as `begin`: there is none
        std::byte *host = nullptr;

        [[nodiscard]] bool none() const { return begin == end; }
        [[nodiscard]] std::byte *stands_for(const void *memory) const {
            return host + (static_cast<const std::byte *>(memory) - begin);
        }
    };
    [[nodiscard]] Range range_of(const std::vector<Piece> &pieces) const;
    void make_room(Range &range);
    static void add(const std::vector<Piece> &pieces, const Range &range, std::vector<cuda::Transfer> &to);

    const Gpu &gpu_;
    MirrorMemory &memory_;
    std::array<MirrorMemory::Block, 2> blocks_;  ///< where it is one, the second is empty
    std::vector<cuda::Transfer> down_, up_;
};

}  // namespace flx

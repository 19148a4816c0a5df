/// \file segment.h
/// A shared-memory segment of the ranks of one host, without a name once all of them have it: nothing is left behind
/// however they end. It also shows which of them still run, whatever children they have forked.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/descriptors.h"
#include "runtime/base/status.h"
#include "runtime/link/bootstrap.h"
#include "runtime/shm/memory/late_memory.h"

namespace flx::shm {

/// Cores fetch cache lines in pairs: what different ranks write does not share one.
inline constexpr size_t kPair = 128;
/// The first pair from a cache line on: `memory`, or the line after.
inline std::byte *to_pair(std::byte *memory) {
    const auto address = reinterpret_cast<uintptr_t>(memory);
    assert(address % (kPair / 2) == 0);
    return memory + (kPair - address % kPair) % kPair;
}

/// Memory of which each rank has a part: that of the host's l-th rank begins at offset + l·stride.
struct Area {
    size_t offset = 0;
    size_t stride = 0;
    bool late = false;  ///< nobody reserves it before it is needed (late_memory.h)
};
struct Range {
    size_t offset = 0;
    size_t bytes = 0;
};
/// What rank `local_rank` of `ranks` reserves at once of a segment of `bytes`: its part of each area that is not late,
/// and rank 0 also what is in no area. Areas rise and do not overlap.
std::vector<Range> parts_of(int local_rank, int ranks, size_t bytes, std::span<const Area> areas);

class Segment final : public LateMemory {
  public:
    /// Collective over `local` (the ranks of this host). The memory is zero, `bytes` long, reserved but for late areas
    /// (a full /dev/shm is an error here, not a signal later), mode 0600, under an unguessable name for the moment it
    /// takes to open it. Names whose ranks were killed in that moment are taken away with the next segment that the
    /// same user makes. Ranks that are threads of one process share one mapping. Each rank reserves its parts of
    /// `areas`, so that they lie in the memory that is near to it; the same on all ranks.
    static Status make(Bootstrap &local, size_t bytes, std::unique_ptr<Segment> &result,
                       std::span<const Area> areas = {});
    /// Bytes that are free in /dev/shm for one now.
    [[nodiscard]] static size_t room();
    ~Segment() override;

    Status reserve(std::byte *memory, size_t bytes) override;
    void map_pages(std::byte *memory, size_t bytes) override;
    void give_back(std::byte *memory, size_t bytes) override;
    [[nodiscard]] std::byte *base() const;
    [[nodiscard]] size_t bytes() const;
    /// Whether the process of that rank of the segment still runs with the segment open. A system call; the kernel
    /// answers, so a rank that is stopped or busy is alive.
    [[nodiscard]] bool alive(int local_rank) const;

  private:
    struct Mapping;
    Segment() = default;
    Status enter(const Bootstrap &local, const std::string &name, size_t bytes, std::span<const Area> areas);
    std::shared_ptr<Mapping> mapping_;
    OwnDescriptor lock_;
};

/// What identifies the memory that ranks can share: kernel and /dev/shm instance. Equal texts can share.
Status host_identity(std::string &identity);

}  // namespace flx::shm

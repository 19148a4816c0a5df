/// \file shown_memory.h
/// Memory that calls write into and that nobody registered: its allocations are shown to the peers in the first call
/// that all ranks meet in, and stay open there, so that later calls find them by number. Plain logic; what it needs of
/// CUDA is an interface.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "runtime/cuda/memory/memory_offer.h"
#include "runtime/cuda/protocol/exchange.h"

namespace flx::cuda {

/// One rank's word on the output of one call. Plain data for memory that ranks share.
struct Showing {
    static constexpr uint32_t kNone = ~0U;
    uint32_t number = kNone;  ///< of the allocation, at its rank; kNone: peers cannot write there
    bool fresh = false;       ///< peers have not opened it
    bool frozen = false;      ///< nothing may be opened now: a graph is being captured
    bool in_place = false;    ///< the output is the input
    uint64_t gone = 0;        ///< fresh: a bit for each number whose allocation is no more
    uint64_t offset = 0;      ///< of the output in the allocation
    MemoryOffer offer;        ///< fresh: the allocation
};

/// Where all ranks' outputs of a call are, as this rank writes to them.
struct PeerOutputs {
    std::array<char *, kMaxRanks> of{};
    bool paged = false;     ///< Outputs::paged
    bool in_place = false;  ///< Outputs::in_place
};

/// CUDA's part.
class MemoryAccess {
  public:
    struct Allocation {
        unsigned long long name = 0;  ///< no other ever has it
        char *base = nullptr;
        uint64_t bytes = 0;
    };
    MemoryAccess() = default;
    MemoryAccess(const MemoryAccess &) = delete;
    MemoryAccess &operator=(const MemoryAccess &) = delete;
    virtual ~MemoryAccess() = default;
    /// The name alone, which costs less; 0: not a GPU's memory.
    virtual unsigned long long name_of(const void *memory) = 0;
    /// False: not memory of this rank's GPU.
    virtual bool find(const void *memory, Allocation &found) = 0;
    virtual Status offer(const Allocation &allocation, MemoryOffer &offer) = 0;
    virtual void withdraw(MemoryOffer &offer) = 0;
    virtual Status open(const MemoryOffer &offer, OpenedMemory &opened) = 0;
};

/// One rank's side. One thread at a time.
class ShownMemory {
  public:
    /// Allocations a rank shows at a time.
    static constexpr uint32_t kMost = 64;

    ShownMemory(MemoryAccess &access, int rank, int ranks) : access_(access), rank_(rank), ranks_(ranks) {}
    ShownMemory(const ShownMemory &) = delete;
    ShownMemory &operator=(const ShownMemory &) = delete;
    ~ShownMemory() { close(); }

    /// Fills in `mine`, which says to the peers where the `bytes` at `output` are.
    void show(char *output, uint64_t bytes, bool frozen, Showing &mine);

    /// What follows from the showings of one call, given in rank order: the same on all ranks.
    static bool writable(std::span<const Showing> all);  ///< by all, once what is fresh was opened
    static bool must_open(std::span<const Showing> all);

    /// Opens what is fresh. Then settle(), with whether all ranks could.
    Status open(std::span<const Showing> all);
    void settle(std::span<const Showing> all, bool opened);

    /// Where the outputs are, if all showings are writable and open.
    [[nodiscard]] PeerOutputs outputs(std::span<const Showing> all, char *mine) const;
    /// Whether peers' memory is open here.
    [[nodiscard]] bool opened() const;
    /// Closes all. No rank frees what a peer still has open.
    void close();

  private:
    struct Own {
        MemoryAccess::Allocation allocation;  ///< name 0: the number is free
        bool open = false;                    ///< at all peers
        MemoryOffer offer;                    ///< until then
    };
    struct Peer {
        OpenedMemory memory;
        bool paged = false;
    };
    [[nodiscard]] uint32_t number_of(unsigned long long name) const;
    void forget(Own &own);

    MemoryAccess &access_;
    int rank_;
    int ranks_;
    std::array<Own, kMost> own_{};
    std::array<std::array<Peer, kMost>, kMaxRanks> peers_{};
    std::vector<unsigned long long> barred_;  ///< names of what cannot be opened
};

}  // namespace flx::cuda

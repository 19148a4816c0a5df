/// \file copies.h
/// What a rank copies in a collective on mapped memory (mapped.h), by the cores and, where there is one, a copy engine.
///
/// The cores begin at the first copy, the engine at the last, and both go on until they meet: so they end together
/// whatever either delivers at the moment. What share each has had is counted, not planned. The engine takes a slice
/// only if it would have copied it before the cores are done with the rest. Whether it takes part at all is asked
/// elsewhere (engine_use.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/link/board.h"
#include "runtime/shm/memory/copy_engine.h"

namespace flx::shm {

struct Copy {
    std::byte *to = nullptr;
    const std::byte *from = nullptr;
    size_t bytes = 0;
    int to_rank = 0;  ///< whose buffers these are
    int from_rank = 0;
};

/// Memory as a copy engine sees it.
class Reach {
  public:
    Reach() = default;
    Reach(const Reach &) = delete;
    Reach &operator=(const Reach &) = delete;
    virtual ~Reach() = default;

    /// Null, or an engine that reaches all that these copies read and write, until release().
    virtual CopyEngine *hold(const std::vector<Copy> &copies) = 0;
    virtual void release() = 0;
    /// Where the engine finds memory of a rank that is held.
    [[nodiscard]] virtual std::byte *place(int rank, const std::byte *at) = 0;
    /// It failed: it is not to be used any more.
    virtual void lost() = 0;
};

class Copies {
  public:
    explicit Copies(int rank) : rank_(rank) {}

    void clear() { copies_.clear(); }
    /// Adds a copy. It touches no memory that another one writes.
    void add(const Copy &copy);
    /// `reach` may be null. Copies to another rank's memory as Board::kUnasked has it; fails with what stands on the
    /// board alone. `stream`: written past the caches.
    Status run(bool stream, const Board *board, Reach *reach);

    /// Whether an engine took part in the last run.
    [[nodiscard]] bool with_engine() const { return with_engine_; }
    // Bytes that each copied, in runs that an engine was there for.
    [[nodiscard]] uint64_t engine_bytes() const { return engine_bytes_; }
    [[nodiscard]] uint64_t core_bytes() const { return core_bytes_; }

  private:
    struct Slice {
        Copy copy;
        int64_t begun_ns = 0;
        bool alone = false;  ///< nothing else was under way
    };

    Status copy_first(size_t most, bool stream, const Board *board);
    Status by_cores(bool stream, const Board *board);
    Status by_both(CopyEngine &engine, bool stream, const Board *board, Reach &reach);
    Status feed(CopyEngine &engine, const Board *board, Reach &reach);
    bool collect(CopyEngine &engine);
    [[nodiscard]] bool pays(size_t bytes) const;
    Copy take_first(size_t most);
    Copy take_last(size_t most);

    int rank_;
    std::vector<Copy> copies_;
    size_t first_ = 0;  ///< of copies_, what neither has begun
    size_t last_ = 0;   ///< one beyond
    size_t left_ = 0;   ///< bytes of them
    std::vector<Slice> under_way_;
    bool failed_ = false;
    bool with_engine_ = false;
    // What both deliver, as seen lately; 0: not known.
    double core_rate_ = 0;    ///< bytes/ns
    double engine_rate_ = 0;  ///< likewise, of copies that follow each other
    double engine_ns_ = 0;    ///< of a copy that comes alone
    int64_t last_end_ns_ = 0;
    uint64_t engine_bytes_ = 0;
    uint64_t core_bytes_ = 0;
};

}  // namespace flx::shm

/// \file call.h
/// One rank's call of an operation: its buffers, what is in them, and what must be there afterwards, byte by byte.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tests/mpi/ahead/plan.h"

namespace flx::test::ahead {

/// What `from` gives in `operation` (to `to` where it gives each something else), elements `first` and on. Bytes of two
/// operations, ranks or places are equal by chance only.
void give(const Operation &operation, int size, int from, int to, size_t first, std::span<std::byte> bytes);
/// What reducing that over the ranks 0 to `last` makes.
void give_reduced(const Operation &operation, int size, int last, size_t first, std::span<std::byte> bytes);

/// in[i] before inout[i], as Reduction::compose.
void compose(const void *in, void *inout, size_t count);

/// Memory for the buffers of an episode, all of them distinct.
class Arena {
  public:
    using Allocate = std::function<void *(size_t)>;
    /// `allocate` is called for large pieces that are kept to the end of the program.
    explicit Arena(Allocate allocate) : allocate_(std::move(allocate)) {}
    std::byte *take(size_t bytes);
    /// All of it is free again.
    void reset() { block_ = at_ = 0; }

  private:
    struct Block {
        std::byte *data;
        size_t bytes;
    };
    Allocate allocate_;
    std::vector<Block> blocks_;
    size_t block_ = 0;
    size_t at_ = 0;
};

class Call {
  public:
    /// `rank` and `size` in the operation's group. `in_memory`, `out_memory`: where its buffers lie.
    Call(const Operation &operation, int rank, int size, Arena &in_memory, Arena &out_memory);

    /// Before each start.
    void fill();
    /// Of the started operation, which is another one with each start of a persistent request.
    void set_number(uint64_t number) { operation_.number = number; }
    /// Empty, or what is wrong; then `seen` are the first wrong bytes.
    [[nodiscard]] std::string verdict(std::vector<std::byte> &seen) const;
    /// The program uses its memory for something else.
    void scribble() const;

    // What an engine passes on. Pointers are null where the collective asks for nothing of this rank.
    [[nodiscard]] const Operation &what() const { return operation_; }
    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return size_; }
    [[nodiscard]] const std::byte *in() const { return in_.data; }
    [[nodiscard]] std::byte *out() const { return out_.data; }
    /// On this rank.
    [[nodiscard]] bool in_place() const { return in_place_; }
    /// This rank sends to itself or others, in a message.
    [[nodiscard]] bool sends() const { return sends_; }
    [[nodiscard]] bool receives() const { return receives_; }
    /// Elements that this rank gives and gets, where lengths are given.
    [[nodiscard]] size_t own_count() const { return own_count_; }
    // Of this rank, in elements: of the longer side of scatterv and gatherv, of what alltoallv sends.
    [[nodiscard]] const std::vector<size_t> &counts() const { return counts_; }
    [[nodiscard]] const std::vector<size_t> &displacements() const { return displacements_; }
    [[nodiscard]] const std::vector<size_t> &counts_back() const { return counts_back_; }  ///< what alltoallv receives
    [[nodiscard]] const std::vector<size_t> &displacements_back() const { return displacements_back_; }

    static constexpr size_t kGuard = 64;

  private:
    struct Side {
        std::byte *memory = nullptr;  ///< with guards; null: there is none
        std::byte *data = nullptr;
        size_t bytes = 0;
    };
    /// Bytes of a side: given by this rank, or expected of others.
    struct Part {
        size_t at;
        size_t bytes;
        int from;  ///< the last one, where it is reduced
        int to;
        size_t first;  ///< element
    };

    void lay_out();
    void make(Side &side, size_t elements, Arena &arena) const;
    void gives(size_t at, size_t count, int to);
    void expects(size_t at, size_t count, int from, int to, size_t first = 0);
    [[nodiscard]] std::vector<size_t> places(const std::vector<size_t> &counts, size_t &elements) const;
    [[nodiscard]] std::byte filler() const;
    void image(const Side &side, std::vector<std::byte> &to) const;
    [[nodiscard]] std::string compare(const Side &side, const std::vector<std::byte> &should, const char *name,
                                      std::vector<std::byte> &seen) const;

    Operation operation_;
    int rank_;
    int size_;
    size_t element_;
    Arena &in_memory_;
    Arena &out_memory_;
    bool in_place_ = false;
    bool sends_ = false;
    bool receives_ = false;
    bool reduced_ = false;
    bool rest_is_scratch_ = false;  ///< behind the result, in place
    size_t own_count_ = 0;
    Side in_, out_;
    std::vector<size_t> counts_, displacements_, counts_back_, displacements_back_;
    std::vector<Part> given_, expected_;
};

}  // namespace flx::test::ahead

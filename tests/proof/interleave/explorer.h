/// \file explorer.h
/// Runs ranks that exchange words and payload in shared memory, and visits all that can come of it: each execution of
/// the C++ memory model's release and acquire operations once (README.md says which, and how).
///
/// Ranks are fibers of one thread. The code that they run is compiled as for ThreadSanitizer, whose calls hooks.cpp
/// takes: each access to the arena comes to the explorer, those to other memory do not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace flx::interleave {

inline constexpr int kMostRanks = 3;
inline constexpr size_t kArenaBytes = size_t{256} << 10;

struct Program {
    int ranks = 2;
    /// Before each run: makes anew what the ranks have.
    std::function<void()> begin;
    /// What a rank does: the same in each run, but for what it reads in the arena. May be left in the middle, for good:
    /// what it has on its stack is not destroyed.
    std::function<void(int rank)> body;
    /// What lies at that place of the arena, for reports.
    std::function<std::string(size_t offset)> place;
};

struct Limits {
    uint64_t most_runs = UINT64_MAX;  ///< more are an error
    bool look_for_repeats = false;    ///< counts executions that were visited before; takes memory
};

struct Result {
    std::string wrong;        ///< empty: all executions are right
    std::string kind;         ///< of what is wrong, in two words
    uint64_t executions = 0;  ///< complete ones
    uint64_t runs = 0;        ///< with those that led nowhere
    uint64_t repeats = 0;     ///< Limits::look_for_repeats
    uint64_t choices = 0;     ///< loads that read what was older than the newest, and what is added later
    size_t events = 0;        ///< of the longest execution
};

alignas(4096) inline std::byte arena_memory[kArenaBytes];
/// Memory that ranks share; zero when a run begins.
[[nodiscard]] inline std::byte *arena() {
    return arena_memory;
}

/// All executions of a program, or those up to the first that is wrong. One at a time in a process.
Result explore(const Program &program, const Limits &limits = {});

// For bodies.

/// Ends the search: `kind` in two words.
[[noreturn]] void wrong(const std::string &kind, const std::string &what);
/// Says what the rank does now; what it looked at before is no part of a wait that follows.
void begin_operation(const std::string &what);

// For hooks.cpp, with addresses in the arena; orders as those of std::memory_order.

enum class Change : uint8_t { set, add, subtract, unite };

inline bool in_body = false;  ///< a rank runs
[[nodiscard]] inline bool watched(const volatile void *address) {
    return in_body && reinterpret_cast<uintptr_t>(address) - reinterpret_cast<uintptr_t>(arena_memory) < kArenaBytes;
}
uint64_t load(const volatile void *address, size_t bytes, int order);
void store(volatile void *address, size_t bytes, uint64_t value, int order);
uint64_t update(volatile void *address, size_t bytes, Change change, uint64_t operand, int order);
void note_read(const volatile void *address, size_t bytes);
void note_write(const volatile void *address, size_t bytes);
/// The rank's last look found nothing, or something.
void pause();
void moved();

}  // namespace flx::interleave

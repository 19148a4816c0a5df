/// \file collective.h
/// The collectives of flx.h, and what tells one from another: a row of a table each.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace flx::algorithms {

/// A barrier is an allreduce of one element (of any type) that nobody reads: it runs with count 1 on an input and an
/// output that are not the same memory. A bcast's input and output are the same memory; its ranks other than the root
/// have no input, and a reduce's no output. In a gather only the root has an output, in a scatter only the root has an
/// input.
enum class Collective : uint8_t {
    allreduce,
    reduce_scatter_block,
    allgather,
    bcast,
    reduce,
    barrier,
    gather,
    scatter,
    scan,
    exscan,
    alltoall,
    alltoallv,
    send_recv,
    gatherv,
    scatterv,
    allgatherv,
    reduce_scatter,
    last = reduce_scatter
};

/// How blocks lie in the input or output buffer.
enum class Layout : uint8_t {
    whole,  ///< the buffer holds the whole vector: block b lies at its own offset
    single  ///< the buffer holds one block only (input of allgather and gather, output of reduce_scatter_block and
            ///< scatter): offset 0
};

/// How ranks of one host may carry it out in their shared memory (runtime/plan/ways.h).
enum class InMemory : uint8_t {
    no,      ///< as messages
    fused,   ///< every rank reads what all show, and nothing else
    direct,  ///< or reads and writes their buffers
    all      ///< or through a stream of blocks
};

struct Traits {
    Collective collective;
    std::string_view name;  ///< as in flx.h and FLX_ALGORITHM
    bool reduces = false;
    bool rooted = false;  ///< and runs schedules that know the root
    Layout input = Layout::whole;
    Layout output = Layout::whole;
    /// Whose schedules it runs: its own, or with blocks of given lengths those of equal blocks. Nothing: it is messages
    /// that depend on nothing (runtime/execute/exchange.h).
    std::optional<Collective> schedules;
    InMemory in_memory = InMemory::no;
    bool between_pairs = false;  ///< what each pair of ranks exchanges has a length of its own
};

inline constexpr std::array kTraits = [] {
    using enum Collective;
    constexpr Layout kWhole = Layout::whole;
    constexpr Layout kSingle = Layout::single;
    constexpr auto kAll = InMemory::all;
    constexpr auto kDirect = InMemory::direct;
    return std::array{
        // collective, name, reduces, rooted, input, output, schedules, in memory, between pairs
        Traits{allreduce, "allreduce", true, false, kWhole, kWhole, allreduce, kAll},
        Traits{reduce_scatter_block, "reduce_scatter_block", true, false, kWhole, kSingle, reduce_scatter_block, kAll},
        Traits{allgather, "allgather", false, false, kSingle, kWhole, allgather, kAll},
        Traits{bcast, "bcast", false, true, kWhole, kWhole, bcast, kAll},
        Traits{reduce, "reduce", true, true, kWhole, kWhole, reduce, kAll},
        Traits{barrier, "barrier", false, false, kWhole, kWhole, barrier, InMemory::fused},
        Traits{gather, "gather", false, true, kSingle, kWhole, gather, kDirect},
        Traits{scatter, "scatter", false, true, kWhole, kSingle, scatter, kDirect},
        Traits{scan, "scan", true, false, kWhole, kWhole, scan, kDirect},
        Traits{exscan, "exscan", true, false, kWhole, kWhole, exscan, kDirect},
        Traits{alltoall, "alltoall", false, false, kWhole, kWhole, std::nullopt, kAll},
        Traits{alltoallv, "alltoallv", false, false, kWhole, kWhole, std::nullopt, InMemory::no, true},
        Traits{send_recv, "send_recv", false, false, kWhole, kWhole, std::nullopt, InMemory::no, true},
        Traits{gatherv, "gatherv", false, false, kWhole, kWhole, std::nullopt, InMemory::no, true},
        Traits{scatterv, "scatterv", false, false, kWhole, kWhole, std::nullopt, InMemory::no, true},
        Traits{allgatherv, "allgatherv", false, false, kWhole, kWhole, allgather, kDirect},
        Traits{reduce_scatter, "reduce_scatter", true, false, kWhole, kWhole, reduce_scatter_block, kDirect}};
}();
inline constexpr size_t kCollectives = kTraits.size();

constexpr size_t index_of(Collective collective) {
    return static_cast<size_t>(collective);
}
static_assert(kCollectives == index_of(Collective::last) + 1, "a row for each");
static_assert(
    [] {
        for (size_t index = 0; index < kCollectives; ++index)
            if (index_of(kTraits[index].collective) != index)
                return false;
        return true;
    }(),
    "rows in the order of the names");

constexpr const Traits &traits_of(Collective collective) {
    return kTraits[index_of(collective)];
}
constexpr std::string_view name_of(Collective collective) {
    return traits_of(collective).name;
}
constexpr bool reduces(Collective collective) {
    return traits_of(collective).reduces;
}
constexpr bool rooted(Collective collective) {
    return traits_of(collective).rooted;
}
/// The one whose schedules it runs.
constexpr std::optional<Collective> scheduled_as(Collective collective) {
    return traits_of(collective).schedules;
}
/// Whether it has schedules of its own.
constexpr bool has_schedules(Collective collective) {
    return traits_of(collective).schedules == collective;
}

constexpr Layout input_layout(Collective collective) {
    return traits_of(collective).input;
}
constexpr Layout output_layout(Collective collective) {
    return traits_of(collective).output;
}
/// Those that have schedules of their own.
inline constexpr auto kScheduled = [] {
    constexpr auto kCount = static_cast<size_t>(
        std::ranges::count_if(kTraits, [](const Traits &traits) { return has_schedules(traits.collective); }));
    std::array<Collective, kCount> scheduled{};
    size_t count = 0;
    for (const Traits &traits : kTraits)
        if (has_schedules(traits.collective))
            scheduled[count++] = traits.collective;
    return scheduled;
}();

/// The collective of that name; nothing if there is none.
constexpr std::optional<Collective> parse_collective(std::string_view name) {
    for (const Traits &traits : kTraits)
        if (traits.name == name)
            return traits.collective;
    return std::nullopt;
}

}  // namespace flx::algorithms

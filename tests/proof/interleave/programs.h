/// \file programs.h
/// Programs whose executions are visited: what ranks do one after the other, by each part of runtime/shm.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/wait.h"
#include "tests/proof/interleave/explorer.h"

namespace flx::interleave {

/// Programs alike, which are visited one after the other.
struct Family {
    std::string name;
    int ranks = 2;
    size_t programs = 0;
    /// The `number`-th one; a body's state is its own.
    std::function<Program(size_t number)> program;
    std::function<std::string(size_t number)> text;
    bool full = false;  ///< only where there is a lot of time
};

std::vector<Family> fused_families();
std::vector<Family> stream_families();
std::vector<Family> channel_families();
std::vector<Family> mapped_families();
std::vector<Family> all_families();

struct NoWatch final : Watch {
    void progress() override {}
    Status check(int64_t) override { return {}; }
};

/// Whose ranks are Rank(of, rank), with run().
template <typename Rank, typename Case>
Program program_of(Case of, std::function<std::string(size_t)> place) {
    const int ranks = of.ranks;
    const auto shared = std::make_shared<const Case>(std::move(of));
    const auto made = std::make_shared<std::vector<std::unique_ptr<Rank>>>(ranks);
    return {.ranks = ranks,
            .begin =
                [shared, made] {
                    for (int rank = 0; rank < shared->ranks; ++rank)
                        (*made)[rank] = std::make_unique<Rank>(*shared, rank);
                },
            .body = [made](int rank) { (*made)[rank]->run(); },
            .place = std::move(place)};
}

/// What a rank gives in an operation, byte by byte; all different enough.
[[nodiscard]] inline uint8_t given(size_t operation, int rank, size_t at) {
    return static_cast<uint8_t>(operation * 89 + static_cast<size_t>(rank) * 37 + at * 11 + 1);
}

}  // namespace flx::interleave

/// \file ranks.h
/// Runs a test's body once for each rank, each in a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/runtime/link/thread_bootstrap.h"

namespace flx::testing {

inline void run_ranks(int size, const std::function<void(int rank)> &body) {
    std::vector<std::thread> threads;
    threads.reserve(static_cast<size_t>(size));
    for (int rank = 0; rank < size; ++rank)
        threads.emplace_back([&body, rank] { body(rank); });
    for (std::thread &thread : threads)
        thread.join();
}

/// With a bootstrap between them.
inline void run_group(int size, const std::function<void(Bootstrap &)> &body) {
    const auto group = std::make_shared<ThreadGroup>(size);
    run_ranks(size, [&](int rank) {
        ThreadBootstrap bootstrap(group, rank);
        body(bootstrap);
    });
}

}  // namespace flx::testing

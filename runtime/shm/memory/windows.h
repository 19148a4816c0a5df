/// \file windows.h
/// The memory that ranks of this host have from flx_malloc, mapped into this process.
///
/// A rank's heap (shared_heap.h) is one file, which the others open through its process's directory in /proc: the
/// kernel allows that to processes that may look into the process, and the file's mode only to its owner. A window
/// shows the file from its beginning to beyond all that was ever given out, so it never has to be looked at when memory
/// is freed and given out again, only replaced when the heap has grown out of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/link/bootstrap.h"
#include "runtime/shm/memory/copy_engine.h"
#include "runtime/shm/memory/shared_heap.h"

namespace flx::shm {

class Windows {
  public:
    /// Collective over `bootstrap`, whose ranks have the processes `pids` on this host. Tries it: `result` stays null,
    /// on all ranks, where one of them cannot map another's heap, and `why` says so.
    static Status make(Bootstrap &bootstrap, const std::vector<int> &pids, std::unique_ptr<Windows> &result,
                       std::string &why);

    /// From now on at(rank) shows the heap up to `end`.
    Status reach(int rank, uint64_t end);
    /// Null before the first reach().
    [[nodiscard]] std::byte *at(int rank) const;
    /// The pins of what at(rank) shows; made by `engine` if there are none yet. They go with the window.
    Pins &pins(int rank, CopyEngine &engine);
    /// Its owner has given back so many pieces by now (pins.h).
    void given_back(int rank, uint32_t freed);

  private:
    struct Window;
    struct Peer {
        int pid = 0;
        SharedHeap::Address address;
        std::shared_ptr<Window> window;
    };

    Windows() = default;
    static Status map(const Peer &peer, int rank, size_t bytes, std::shared_ptr<Window> &window);

    std::vector<Peer> peers_;
};

}  // namespace flx::shm

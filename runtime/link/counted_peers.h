/// \file counted_peers.h
/// To which peers a link has counted something of late, so that who asks need not read the counters of all. It has no
/// lock: whoever counts and whoever asks are one thread, or hold the lock under which the link counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace flx {

class CountedPeers {
  public:
    /// Room for all, so that nothing is to be had where chunks are counted.
    explicit CountedPeers(size_t peers) : noted_(peers) { peers_.reserve(peers); }

    void note(int peer) {
        if (noted_[static_cast<size_t>(peer)] != 0)
            return;
        noted_[static_cast<size_t>(peer)] = 1;
        peers_.push_back(peer);
    }
    /// Those that were noted since this was called last, each once, in place of what was in `peers`.
    void take(std::vector<int> &peers) {
        peers.assign(peers_.begin(), peers_.end());
        peers_.clear();
        for (const int peer : peers)
            noted_[static_cast<size_t>(peer)] = 0;
    }

  private:
    std::vector<uint8_t> noted_;  // by peer
    std::vector<int> peers_;
};

}  // namespace flx

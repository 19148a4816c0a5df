/// \file flag_words.h
/// Which words a rank writes and awaits, where streams wait for each other without kernels
/// (runtime/cuda/memory/stream_flags.h). Plain logic, carried out by the front ends of GPUs and by host threads
/// (tests).
///
/// Each operation counts from 0 on every channel and leaves all of its rank's words at 0, so what a graph captured can
/// be replayed between eager calls. That is safe because an operation begins and ends with a meeting of all ranks: a
/// rank clears the words of its channels before it says that it has ended, and no peer writes them again before it has
/// heard that. The words of `begun` are cleared before `ended` is told, and the other way round.
#pragma once

#include <array>
#include <vector>

#include "runtime/cuda/protocol/exchange.h"

namespace flx::cuda {

/// Written, or awaited: until it is `value` or up to half of all numbers more.
struct FlagStroke {
    bool waits = false;
    uint32_t word = 0;
    uint32_t value = 0;
};

class FlagWords {
  public:
    enum class Channel : uint8_t { begun, ended, arrived, consumed, filled, drained };
    static constexpr uint32_t kChannels = 6;
    static constexpr uint32_t kOfRank = (kChannels + 1) * kMaxRanks;  ///< the last row: busy
    static constexpr uint32_t kAll = kOfRank * kMaxRanks;

    FlagWords() = default;
    FlagWords(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

    /// The meetings of all ranks at the beginning and at the end of an operation.
    void begin(std::vector<FlagStroke> &strokes) {
        told_.fill(0);
        heard_.fill(0);
        strokes.push_back({false, busy(), 1});
        meet(Channel::begun, strokes);
    }
    void end(std::vector<FlagStroke> &strokes) {
        for (const Channel channel : {Channel::arrived, Channel::consumed, Channel::filled, Channel::drained})
            for (int peer = 0; heard_[index(channel)] != 0 && peer < ranks_; ++peer)
                strokes.push_back({false, word(rank_, channel, peer), 0});
        meet(Channel::ended, strokes);
        strokes.push_back({false, busy(), 0});
    }
    /// Between begin() and end(): tell() signals to `peers` that this rank got `times` steps further on a channel;
    /// hear() waits until each of them has signalled so many more.
    void tell(Channel channel, uint32_t peers, uint32_t times, std::vector<FlagStroke> &strokes) {
        const uint32_t count = told_[index(channel)] += peers == 0 ? 0 : times;
        for (int peer = 0; peer < ranks_; ++peer)
            if ((peers >> peer & 1) != 0)
                strokes.push_back({false, word(peer, channel, rank_), count});
    }
    void hear(Channel channel, uint32_t peers, uint32_t times, std::vector<FlagStroke> &strokes) {
        const uint32_t count = heard_[index(channel)] += peers == 0 ? 0 : times;
        for (int peer = 0; peer < ranks_; ++peer)
            if ((peers >> peer & 1) != 0)
                strokes.push_back({true, word(rank_, channel, peer), count});
    }

    /// 1 while an operation of this rank is under way.
    [[nodiscard]] uint32_t busy() const { return rank_ * kOfRank + kChannels * kMaxRanks; }
    /// Those that this rank awaits.
    [[nodiscard]] uint32_t first() const { return rank_ * kOfRank; }
    static constexpr uint32_t kAwaited = kChannels * kMaxRanks;

  private:
    static constexpr size_t index(Channel channel) { return static_cast<size_t>(channel); }
    static uint32_t word(int of, Channel channel, int from) {
        return of * kOfRank + static_cast<uint32_t>(channel) * kMaxRanks + from;
    }
    void meet(Channel channel, std::vector<FlagStroke> &strokes) const {
        for (const bool waits : {false, true})
            for (int k = 1; k < ranks_; ++k) {
                const int peer = (rank_ + k) % ranks_;
                strokes.push_back({waits, waits ? word(rank_, channel, peer) : word(peer, channel, rank_), 1});
            }
        for (int k = 1; k < ranks_; ++k)
            strokes.push_back({false, word(rank_, channel, (rank_ + k) % ranks_), 0});
    }

    int rank_ = 0;
    int ranks_ = 1;
    std::array<uint32_t, kChannels> told_{};   ///< in this operation
    std::array<uint32_t, kChannels> heard_{};  ///< likewise
};

}  // namespace flx::cuda

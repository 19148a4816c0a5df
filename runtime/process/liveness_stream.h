/// \file liveness_stream.h
/// A connection between two liveness responders, for where datagrams do not come through: sealed messages, each behind
/// its length. Private to liveness. Nothing blocks, and a message for which there is no room is lost, as any may be.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/descriptors.h"
#include "runtime/process/liveness_wire.h"

namespace flx::liveness {

class Stream {
  public:
    enum class State : uint8_t { connecting, open, ended };

    /// Begins to connect.
    Stream(const Address &to, uint64_t peer);
    /// Takes a connection that `listener` has for it; ended() where there is none.
    explicit Stream(int listener);

    [[nodiscard]] int descriptor() const { return socket_.get(); }
    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] bool ended() const { return state_ == State::ended; }
    /// Whether the far end said that nobody listens there.
    [[nodiscard]] bool refused() const { return refused_; }
    /// Where this process connected to; without a port: it was connected to.
    [[nodiscard]] const Address &to() const { return to_; }
    void end() { state_ = State::ended; }

    /// Called after poll said that a connection can be used, or cannot.
    void settle();
    /// Reads what came.
    void fill();
    /// The next whole message, valid until the next call; empty: none. Ends the stream where it is none of liveness.
    std::span<const std::byte> next();
    void send(std::span<const std::byte> sealed);
    /// Sends what an earlier message left, now that there is room.
    void flush();
    [[nodiscard]] bool wants_room() const { return state_ == State::connecting || !rest_.empty(); }

    uint64_t peer = 0;    ///< uid; of one that connected here 0 until it has sent a message that it sealed
    bool proven = false;  ///< a message of the peer came
    int64_t since_ns = 0;
    int64_t used_ns = 0;

  private:
    using Length = uint16_t;

    Address to_;
    OwnDescriptor socket_;
    State state_ = State::ended;
    bool refused_ = false;
    std::array<std::byte, 4 * (kMostBytes + sizeof(Length))> bytes_;
    size_t begin_ = 0;
    size_t end_ = 0;
    std::vector<std::byte> rest_;
};

}  // namespace flx::liveness

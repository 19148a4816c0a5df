/// \file movable.h
/// What the process and its progress thread know of a communicator: whether it has something under way, and how to move
/// that.
#pragma once

#include <atomic>
#include <cstdint>

namespace flx {

class Movable {
  public:
    Movable() = default;
    Movable(const Movable &) = delete;
    Movable &operator=(const Movable &) = delete;

    [[nodiscard]] uint32_t id() const { return id_; }
    /// Whether something is under way, as of the last call's end. From any thread.
    [[nodiscard]] bool busy() const { return busy_.load(std::memory_order_relaxed); }
    /// Moves what is under way, unless a call is at it. Whether anything moved.
    virtual bool move_in_thread() = 0;

  protected:
    ~Movable() = default;

    uint32_t id_ = 0;
    std::atomic<bool> busy_{false};
};

}  // namespace flx

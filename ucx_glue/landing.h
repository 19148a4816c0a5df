/// \file landing.h
/// Landing memory of rails whose payload goes by remote put. A receiver owns one ring of slots per sender, made when
/// that sender first asks; the sender picks free slots of it, and an acknowledgement frees a slot. User memory is never
/// the target of a put: a put that a lost rail carries out late lands here, where nobody minds, and unmapping a
/// sender's ring revokes its access.
///
/// Memory: slots · slot_bytes per sending peer and rail (RailOptions::window_bytes, rounded up to whole chunks, at
/// most kMaxSlots of them).
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace flx::ucx {

inline constexpr uint32_t kMaxSlots = 16;

/// The receiver's side: memory that one peer may write.
class LandingRing {
  public:
    LandingRing() = default;
    LandingRing(const LandingRing &) = delete;
    LandingRing &operator=(const LandingRing &) = delete;
    ~LandingRing() { unmap(); }

    /// Allocates and registers `slots` of `slot_bytes`. FLX_ERR_SYSTEM.
    Status map(ucp_context_h context, uint32_t slots, size_t slot_bytes);
    void unmap();

    [[nodiscard]] bool mapped() const { return base_ != nullptr; }
    [[nodiscard]] uint32_t slots() const { return slots_; }
    [[nodiscard]] size_t slot_bytes() const { return slot_bytes_; }
    [[nodiscard]] std::byte *base() const { return base_; }
    [[nodiscard]] std::byte *slot(uint32_t index) const { return base_ + index * slot_bytes_; }
    /// The key that the peer needs besides the address.
    [[nodiscard]] const std::string &key() const { return key_; }

  private:
    ucp_context_h context_ = nullptr;
    ucp_mem_h memory_ = nullptr;
    std::byte *base_ = nullptr;
    uint32_t slots_ = 0;
    size_t slot_bytes_ = 0;
    std::string key_;
};

/// The sender's side: which slots of a peer's ring are free.
class RemoteRing {
  public:
    enum class State : uint8_t { unknown, asked, granted, refused };

    RemoteRing() = default;
    RemoteRing(const RemoteRing &) = delete;
    RemoteRing &operator=(const RemoteRing &) = delete;
    ~RemoteRing() { forget(); }

    [[nodiscard]] State state() const { return state_; }
    void asked() { state_ = State::asked; }
    void refused() { state_ = State::refused; }
    /// Takes the peer's grant in. On failure the ring counts as refused.
    Status granted(ucp_ep_h endpoint, uint64_t base, uint32_t slots, size_t slot_bytes, const void *key);
    /// Must be called before the endpoint is closed.
    void forget();

    [[nodiscard]] bool has_free() const { return !free_.empty(); }
    uint32_t take() {
        uint32_t slot = free_.back();
        free_.pop_back();
        return slot;
    }
    void give(uint32_t slot) { free_.push_back(slot); }
    [[nodiscard]] uint64_t address(uint32_t slot) const { return base_ + slot * slot_bytes_; }
    [[nodiscard]] ucp_rkey_h key() const { return key_; }

  private:
    State state_ = State::unknown;
    uint64_t base_ = 0;
    size_t slot_bytes_ = 0;
    ucp_rkey_h key_ = nullptr;
    std::vector<uint32_t> free_;
};

}  // namespace flx::ucx

/// \file liveness_seal.h
/// Seals: what processes of a job say to each other beside the links is encrypted and authenticated (libsodium: X25519
/// for the keys of each pair, ChaCha20-Poly1305 for messages), so that no secret leaves a process, nobody else can
/// speak for a process, and nothing counts twice. Private to liveness.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "runtime/base/status.h"

namespace flx::liveness {

using PublicKey = std::array<uint8_t, 32>;

/// What precedes and follows a sealed message.
inline constexpr size_t kSealHeadBytes = 24;
inline constexpr size_t kSealTailBytes = 16;
inline constexpr size_t kSealBytes = kSealHeadBytes + kSealTailBytes;

/// The name by which a receiver finds the sender's session: the beginning of the sender's public key.
uint64_t name_of(const PublicKey &key);
/// The name in a sealed message; nothing if it is none.
std::optional<uint64_t> sender_of(std::span<const std::byte> sealed);

/// Message numbers that came. One that came before, or so many earlier that it is not known, is not fresh.
class Window {
  public:
    static constexpr uint64_t kNumbers = 2048;
    [[nodiscard]] bool fresh(uint64_t number) const;
    void add(uint64_t number);

  private:
    static constexpr uint64_t kWords = kNumbers / 64 + 1;  // one that is partly of the numbers before
    std::array<uint64_t, kWords> words_{};
    uint64_t last_ = 0;
};

/// The session between this process and one peer. Not thread-safe. 2048 messages of different paths may overtake each
/// other.
class Session {
  public:
    /// `out` holds `text` and kSealBytes more. The length that was written.
    size_t seal(std::span<const std::byte> text, std::span<std::byte> out);
    /// Into `out`, which is large enough for what `sealed` may hold; nothing: it is not the peer's, or no longer fresh.
    std::optional<size_t> open(std::span<const std::byte> sealed, std::span<std::byte> out);

  private:
    friend class Identity;
    using Key = std::array<uint8_t, 32>;
    uint64_t name_ = 0;
    Key to_{};
    Key from_{};
    uint64_t sent_ = 0;
    Window seen_;
};

/// This process's keys: made anew in each, and the secret one never leaves it.
class Identity {
  public:
    /// FLX_ERR_SYSTEM where the library does not start.
    static Status make(Identity &result);
    Identity() = default;
    ~Identity();
    Identity(const Identity &) = delete;
    Identity &operator=(const Identity &) = delete;

    [[nodiscard]] const PublicKey &key() const { return public_; }
    /// Some 50 us. False: `peer` is no key.
    bool meet(const PublicKey &peer, Session &result) const;

  private:
    PublicKey public_{};
    std::array<uint8_t, 32> secret_{};
};

}  // namespace flx::liveness

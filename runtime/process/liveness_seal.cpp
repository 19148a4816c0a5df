#include "runtime/process/liveness_seal.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>

namespace flx::liveness {
namespace {

constexpr uint64_t kMagic = 0x464C584C49564533;  // "FLXLIVE3"

/// The head of a sealed message: in clear, and authenticated with it.
struct Head {
    uint64_t magic = kMagic;
    uint64_t name = 0;    ///< the sender's
    uint64_t number = 0;  ///< from 1 on; the nonce
};
static_assert(sizeof(Head) == kSealHeadBytes);
static_assert(kSealTailBytes == crypto_aead_chacha20poly1305_ietf_ABYTES);
static_assert(sizeof(PublicKey) == crypto_kx_PUBLICKEYBYTES);

std::optional<Head> head_of(std::span<const std::byte> sealed) {
    Head head;
    if (sealed.size() < kSealBytes)
        return std::nullopt;
    std::memcpy(&head, sealed.data(), sizeof head);
    if (head.magic != kMagic)
        return std::nullopt;
    return head;
}

/// A number is used once with a key: each direction of each pair has its own.
std::array<uint8_t, crypto_aead_chacha20poly1305_ietf_NPUBBYTES> nonce_of(uint64_t number) {
    std::array<uint8_t, crypto_aead_chacha20poly1305_ietf_NPUBBYTES> nonce{};
    std::memcpy(nonce.data(), &number, sizeof number);
    return nonce;
}

const uint8_t *bytes_of(const std::byte *bytes) {
    return reinterpret_cast<const uint8_t *>(bytes);
}
uint8_t *bytes_of(std::byte *bytes) {
    return reinterpret_cast<uint8_t *>(bytes);
}

}  // namespace

uint64_t name_of(const PublicKey &key) {
    uint64_t name = 0;
    std::memcpy(&name, key.data(), sizeof name);
    return name;
}

std::optional<uint64_t> sender_of(std::span<const std::byte> sealed) {
    const std::optional<Head> head = head_of(sealed);
    return head ? std::optional(head->name) : std::nullopt;
}

bool Window::fresh(uint64_t number) const {
    if (number > last_)
        return true;
    return number != 0 && last_ - number < kNumbers && (words_[number / 64 % kWords] >> number % 64 & 1) == 0;
}

void Window::add(uint64_t number) {
    if (number > last_) {
        const uint64_t words = std::min(number / 64 - last_ / 64, kWords);
        for (uint64_t i = 0; i < words; ++i)
            words_[(number / 64 - i) % kWords] = 0;
        last_ = number;
    }
    words_[number / 64 % kWords] |= uint64_t{1} << number % 64;
}

size_t Session::seal(std::span<const std::byte> text, std::span<std::byte> out) {
    const Head head{kMagic, name_, ++sent_};
    std::memcpy(out.data(), &head, sizeof head);
    unsigned long long length = 0;
    crypto_aead_chacha20poly1305_ietf_encrypt(bytes_of(out.data() + sizeof head), &length, bytes_of(text.data()),
                                              text.size(), bytes_of(out.data()), sizeof head, nullptr,
                                              nonce_of(head.number).data(), to_.data());
    return sizeof head + length;
}

std::optional<size_t> Session::open(std::span<const std::byte> sealed, std::span<std::byte> out) {
    const std::optional<Head> head = head_of(sealed);
    if (!head || !seen_.fresh(head->number) || sealed.size() - kSealBytes > out.size())
        return std::nullopt;
    unsigned long long length = 0;
    if (crypto_aead_chacha20poly1305_ietf_decrypt(bytes_of(out.data()), &length, nullptr,
                                                  bytes_of(sealed.data() + sizeof *head), sealed.size() - sizeof *head,
                                                  bytes_of(sealed.data()), sizeof *head, nonce_of(head->number).data(),
                                                  from_.data()) != 0)
        return std::nullopt;
    seen_.add(head->number);
    return length;
}

Status Identity::make(Identity &result) {
    if (sodium_init() < 0)
        return fail(Fault::no_secret, "libsodium, which seals what processes say to each other, does not start");
    crypto_kx_keypair(result.public_.data(), result.secret_.data());
    return {};
}

Identity::~Identity() {
    sodium_memzero(secret_.data(), secret_.size());
}

bool Identity::meet(const PublicKey &peer, Session &result) const {
    result.name_ = name_of(public_);
    // Both sides must agree who is which; a process that talks to itself is both.
    const bool first = public_ <= peer;
    const auto keys = first ? crypto_kx_client_session_keys : crypto_kx_server_session_keys;
    if (keys(result.from_.data(), result.to_.data(), public_.data(), secret_.data(), peer.data()) != 0)
        return false;
    if (public_ == peer)
        result.from_ = result.to_;
    return true;
}

}  // namespace flx::liveness

/// \file liveness_wire.h
/// The datagrams of liveness questions and answers, and the text form of a process's addresses. Private to liveness.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace flx::liveness {

inline constexpr uint64_t kMagic = 0x464C584C49564531;  // "FLXLIVE1"
inline constexpr size_t kWhyBytes = 480;
inline constexpr size_t kTextBytes = 512;

/// Path questions go over one path, and so does the answer; a word is for the rails (Paths::tell).
enum class Kind : uint32_t { kQuestion = 1, kAnswer = 2, kNotice = 3, kPathQuestion = 4, kPathAnswer = 5, kWord = 6 };

/// Host byte order: a job's processes run on machines of one kind. Sent up to the end of the sentence.
struct Datagram {
    uint64_t magic = kMagic;
    uint64_t secret = 0;  ///< the receiver's
    uint64_t reply = 0;   ///< question: the sender's, which the answer must carry
    uint64_t from = 0;    ///< uid of the sender
    uint64_t to = 0;      ///< uid of the receiver
    Kind kind = Kind::kQuestion;
    uint32_t path = 0;       ///< which of the receiver's addresses was asked, or over which of the sender's paths; the
                             ///< answer repeats it
    uint32_t comm = 0;       ///< question: about which communicator; answer: that one if it is broken, or something is
                             ///< said of it; notice: one that is broken
    uint32_t code = 0;       ///< flx_status_t that broke it; 0: `why` is what is said of it
    uint32_t why_bytes = 0;  ///< of the sentence, of what is said, or of the word
    uint32_t reserved = 0;
    uint64_t number = 0;  ///< question: of the call that is asked about
    std::array<char, kTextBytes> why{};
};
inline constexpr size_t kHeaderBytes = offsetof(Datagram, why);
static_assert(std::is_trivially_copyable_v<Datagram> && sizeof(Datagram) == 72 + kTextBytes);

/// Nothing unless the bytes are a whole datagram with this secret.
std::optional<Datagram> parse(std::span<const std::byte> bytes, uint64_t secret);

/// Where a process listens. Text: `host port secret address address …`, e.g. `1f0a77c2 40123 9e3c 10.0.0.7 127.0.0.1`.
struct Place {
    uint64_t host = 0;                ///< the same for two processes if they share a loopback interface
    uint16_t port = 0;                ///< host byte order
    std::vector<uint32_t> addresses;  ///< IPv4, network byte order; loopback last
    uint64_t secret = 0;              ///< for datagrams to it
};

/// This process's, with the addresses of all interfaces that are up.
Place local_place(uint16_t port, uint64_t secret);
std::string to_text(const Place &place);
/// For people, who must not see the secret.
std::string addresses_of(const Place &place);
/// Nothing if there is no host, port or secret; words that are not IPv4 addresses are skipped.
std::optional<Place> parse_place(std::string_view text);
/// Those of `peer`'s addresses at which `self` can only meet the peer: where the two share no loopback interface, not
/// loopback, and not an address that `self` has too (a bridge's default address is the same on many hosts).
std::vector<uint32_t> usable_addresses(const Place &self, const Place &peer);
bool is_loopback(uint32_t address);

}  // namespace flx::liveness

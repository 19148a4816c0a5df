/// \file liveness_wire.h
/// What liveness datagrams say, and the text form of a process's addresses. Private to liveness. How they are sealed is
/// liveness_seal.h's.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "runtime/link/paths.h"
#include "runtime/process/liveness_seal.h"

namespace flx::liveness {

inline constexpr size_t kWhyBytes = 480;
inline constexpr size_t kTextBytes = 512;

/// Path questions go over one path, and so does the answer; a word is for the rails (Paths::tell).
enum class Kind : uint32_t { kQuestion = 1, kAnswer = 2, kNotice = 3, kPathQuestion = 4, kPathAnswer = 5, kWord = 6 };

/// Host byte order: a job's processes run on machines of one kind. Sent up to the end of the sentence. Who sent it and
/// to whom is the seal's word. All ranks run one version of FLX (introduction.h), so fields may be added at will; the
/// seal's magic number then changes.
struct Datagram {
    Kind kind = Kind::kQuestion;
    uint32_t path = 0;       ///< which of the receiver's addresses was asked, or over which of the sender's paths; the
                             ///< answer repeats it
    uint32_t comm = 0;       ///< question: about which communicator; answer: that one if it is broken, or something is
                             ///< said of it; notice: one that is broken
    uint32_t fault = 0;      ///< Fault that broke it; 0: `why` is what is said of it
    uint32_t why_bytes = 0;  ///< of the sentence, of what is said, or of the word
    uint32_t stamp = 0;      ///< question: when it was asked, by the asker's clock (stamp_of); the answer repeats it
    uint64_t number = 0;     ///< question: of the call that is asked about
    std::array<char, kTextBytes> why{};
};
inline constexpr size_t kHeaderBytes = offsetof(Datagram, why);
static_assert(std::is_trivially_copyable_v<Datagram> && sizeof(Datagram) == kHeaderBytes + kTextBytes);
inline constexpr size_t kMostBytes = sizeof(Datagram) + kSealBytes;

/// The sealed form, in `out` (kMostBytes); its length.
size_t encode(const Datagram &datagram, Session &session, std::span<std::byte> out);
/// Nothing unless the bytes are a whole datagram that the session's peer sealed and that did not come before.
std::optional<Datagram> decode(std::span<const std::byte> bytes, Session &session);

/// An IPv4 or IPv6 address with a port. IPv4 as ::ffff:a.b.c.d.
struct Address {
    HostAddress host{};
    uint16_t port = 0;  ///< host byte order
    auto operator<=>(const Address &) const = default;
};
/// `address` in network byte order.
Address ipv4_address(uint32_t address, uint16_t port = 0);
/// The other way round; 0: it is none.
uint32_t ipv4_of(const Address &address);
[[nodiscard]] bool is_ipv4(const Address &address);
[[nodiscard]] bool is_loopback(const Address &address);
[[nodiscard]] bool same_host(const Address &a, const Address &b);
socklen_t to_socket_address(const Address &address, sockaddr_storage &out);
Address from_socket_address(const sockaddr_storage &address);
std::string to_text(const Address &address);  ///< `10.0.0.7:40123`, `[fd00::7]:40123`
std::optional<Address> parse_address(const std::string &text);

/// Where a process listens. Text: `host key address address …`, e.g. `1f0a77c2 9e3c… 10.0.0.7:40123 127.0.0.1:40124`.
struct Place {
    uint64_t host = 0;               ///< the same for two processes if they share a loopback interface
    PublicKey key{};                 ///< with which datagrams to it are sealed
    std::vector<Address> addresses;  ///< loopback last
};

/// This process's, without addresses.
Place local_place(const PublicKey &key);
/// Addresses, without ports, of this host's interfaces that are up, but for loopback and those that mean nothing
/// without their interface (fe80::).
std::vector<Address> network_addresses();
/// 127.0.0.1, or ::1 where there is no such address.
Address loopback_address();
std::string to_text(const Place &place);
/// The addresses as text for people, without the key.
std::string addresses_of(const Place &place);
/// Nothing if there is no host or key; words that are no addresses are skipped.
std::optional<Place> parse_place(std::string_view text);
/// Those of `peer`'s addresses at which `self` can only meet the peer. Where the two share a loopback interface that
/// alone, if the peer listens there; else not loopback, and not an address that `self` has too (a bridge's default
/// address is the same on many hosts).
std::vector<Address> usable_addresses(const Place &self, const Place &peer);

}  // namespace flx::liveness

#include "runtime/process/liveness_wire.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <memory>
#include <sstream>

#include "runtime/base/boot_id.h"

namespace flx::liveness {
namespace {

/// Two processes share a loopback interface if kernel and network namespace are the same.
uint64_t local_host() {
    std::string id = boot_id();
    struct stat network {};
    if (stat("/proc/self/ns/net", &network) == 0)
        id += fmt::format(" {}", network.st_ino);
    uint64_t hash = 0xCBF29CE484222325;  // FNV-1a, so that all builds agree
    for (const char c : id)
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
    return hash;
}

std::string to_hex(const PublicKey &key) {
    std::string text;
    for (const uint8_t byte : key)
        text += fmt::format("{:02x}", byte);
    return text;
}

template <typename Number>
bool whole_number(std::string_view text, Number &value, int base) {
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value, base);
    return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

bool from_hex(const std::string &text, PublicKey &key) {
    if (text.size() != 2 * key.size())
        return false;
    for (size_t i = 0; i < key.size(); ++i)
        if (!whole_number(std::string_view(text).substr(2 * i, 2), key[i], 16))
            return false;
    return true;
}

}  // namespace

size_t encode(const Datagram &datagram, Session &session, std::span<std::byte> out) {
    const auto bytes = std::as_bytes(std::span(&datagram, 1));
    return session.seal(bytes.first(kHeaderBytes + datagram.why_bytes), out);
}

std::optional<Datagram> decode(std::span<const std::byte> bytes, Session &session) {
    Datagram datagram;
    const std::optional<size_t> length = session.open(bytes, std::as_writable_bytes(std::span(&datagram, 1)));
    if (!length || *length < kHeaderBytes || *length != kHeaderBytes + datagram.why_bytes)
        return std::nullopt;
    if (datagram.kind < Kind::kQuestion || datagram.kind > Kind::kWord)
        return std::nullopt;
    return datagram;
}

Address ipv4_address(uint32_t address, uint16_t port) {
    Address result{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, port};
    std::memcpy(&result.host[12], &address, sizeof address);
    return result;
}

bool is_ipv4(const Address &address) {
    return same_host(ipv4_address(ipv4_of(address)), address);
}

uint32_t ipv4_of(const Address &address) {
    uint32_t result = 0;
    std::memcpy(&result, &address.host[12], sizeof result);
    return result;
}

bool is_loopback(const Address &address) {
    constexpr uint8_t kLoopback = 127;
    return is_ipv4(address) ? address.host[12] == kLoopback
                            : std::memcmp(address.host.data(), &in6addr_loopback, sizeof in6addr_loopback) == 0;
}

bool same_host(const Address &a, const Address &b) {
    return a.host == b.host;
}

socklen_t to_socket_address(const Address &address, sockaddr_storage &out) {
    out = {};
    if (is_ipv4(address)) {
        sockaddr_in ipv4{};
        ipv4.sin_family = AF_INET;
        ipv4.sin_port = htons(address.port);
        ipv4.sin_addr.s_addr = ipv4_of(address);
        std::memcpy(&out, &ipv4, sizeof ipv4);
        return sizeof ipv4;
    }
    sockaddr_in6 ipv6{};
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(address.port);
    std::memcpy(&ipv6.sin6_addr, address.host.data(), address.host.size());
    std::memcpy(&out, &ipv6, sizeof ipv6);
    return sizeof ipv6;
}

Address from_socket_address(const sockaddr_storage &address) {
    if (address.ss_family == AF_INET) {
        sockaddr_in ipv4;
        std::memcpy(&ipv4, &address, sizeof ipv4);
        return ipv4_address(ipv4.sin_addr.s_addr, ntohs(ipv4.sin_port));
    }
    sockaddr_in6 ipv6;
    std::memcpy(&ipv6, &address, sizeof ipv6);
    Address result;
    std::memcpy(result.host.data(), &ipv6.sin6_addr, result.host.size());
    result.port = ntohs(ipv6.sin6_port);
    return result;
}

std::string to_text(const Address &address) {
    char name[INET6_ADDRSTRLEN] = {};
    if (is_ipv4(address)) {
        inet_ntop(AF_INET, &address.host[12], name, sizeof name);
        return fmt::format("{}:{}", name, address.port);
    }
    inet_ntop(AF_INET6, address.host.data(), name, sizeof name);
    return fmt::format("[{}]:{}", name, address.port);
}

std::optional<Address> parse_address(const std::string &text) {
    const size_t colon = text.rfind(':');
    if (colon == std::string::npos || colon == 0)
        return std::nullopt;
    const bool ipv6 = text.front() == '[' && text[colon - 1] == ']';
    const std::string name = ipv6 ? text.substr(1, colon - 2) : text.substr(0, colon);
    Address address = ipv4_address(0);
    if (!whole_number(std::string_view(text).substr(colon + 1), address.port, 10) || address.port == 0 ||
        inet_pton(ipv6 ? AF_INET6 : AF_INET, name.c_str(), ipv6 ? address.host.data() : &address.host[12]) != 1)
        return std::nullopt;
    return address;
}

Place local_place(const PublicKey &key) {
    return {local_host(), key, {}};
}

std::vector<Address> network_addresses() {
    std::vector<Address> addresses;
    ifaddrs *list = nullptr;
    if (getifaddrs(&list) != 0)
        return addresses;
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
    for (const ifaddrs *entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr == nullptr || !(entry->ifa_flags & IFF_UP) || (entry->ifa_flags & IFF_LOOPBACK))
            continue;
        sockaddr_storage address{};
        if (entry->ifa_addr->sa_family == AF_INET)
            std::memcpy(&address, entry->ifa_addr, sizeof(sockaddr_in));
        else if (entry->ifa_addr->sa_family == AF_INET6)
            std::memcpy(&address, entry->ifa_addr, sizeof(sockaddr_in6));
        else
            continue;
        const Address found = from_socket_address(address);
        in6_addr ipv6;
        std::memcpy(&ipv6, found.host.data(), sizeof ipv6);
        if (!is_loopback(found) && !IN6_IS_ADDR_LINKLOCAL(&ipv6))
            addresses.push_back(found);
    }
    return addresses;
}

Address loopback_address() {
    ifaddrs *list = nullptr;
    Address result = ipv4_address(htonl(INADDR_LOOPBACK));
    if (getifaddrs(&list) != 0)
        return result;
    bool ipv4 = false, ipv6 = false;
    for (const ifaddrs *entry = list; entry != nullptr; entry = entry->ifa_next) {
        const bool loops = entry->ifa_addr != nullptr && (entry->ifa_flags & IFF_LOOPBACK);
        ipv4 = ipv4 || (loops && entry->ifa_addr->sa_family == AF_INET);
        ipv6 = ipv6 || (loops && entry->ifa_addr->sa_family == AF_INET6);
    }
    freeifaddrs(list);
    if (!ipv4 && ipv6)
        std::memcpy(result.host.data(), &in6addr_loopback, result.host.size());
    return result;
}

std::string addresses_of(const Place &place) {
    std::string text;
    for (const Address &address : place.addresses)
        text += fmt::format("{}{}", text.empty() ? "" : " ", to_text(address));
    return text.empty() ? "none" : text;
}

std::string to_text(const Place &place) {
    std::string text = fmt::format("{:x} {}", place.host, to_hex(place.key));
    for (const Address &address : place.addresses)
        text += fmt::format(" {}", to_text(address));
    return text;
}

std::optional<Place> parse_place(std::string_view text) {
    std::istringstream words{std::string(text)};
    std::string host, key, word;
    Place place;
    words >> host >> key;
    if (!whole_number(host, place.host, 16) || !from_hex(key, place.key))
        return std::nullopt;
    while (words >> word)
        if (const std::optional<Address> address = parse_address(word); address)
            place.addresses.push_back(*address);
    return place;
}

std::vector<Address> usable_addresses(const Place &self, const Place &peer) {
    std::vector<Address> result;
    if (self.host == peer.host) {
        std::copy_if(peer.addresses.begin(), peer.addresses.end(), std::back_inserter(result), is_loopback);
        return result.empty() ? peer.addresses : result;
    }
    for (const Address &address : peer.addresses) {
        const bool own = std::any_of(self.addresses.begin(), self.addresses.end(),
                                     [&](const Address &mine) { return same_host(mine, address); });
        if (!is_loopback(address) && !own)
            result.push_back(address);
    }
    return result;
}

}  // namespace flx::liveness

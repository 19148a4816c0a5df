#include "liveness_wire.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <memory>
#include <sstream>

#include "boot_id.h"

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

}  // namespace

std::optional<Datagram> parse(std::span<const std::byte> bytes, uint64_t secret) {
    Datagram datagram;
    if (bytes.size() < kHeaderBytes || bytes.size() > sizeof(Datagram))
        return std::nullopt;
    std::memcpy(&datagram, bytes.data(), bytes.size());
    if (datagram.magic != kMagic || datagram.secret != secret || bytes.size() != kHeaderBytes + datagram.why_bytes)
        return std::nullopt;
    if (datagram.kind < Kind::kQuestion || datagram.kind > Kind::kWord)
        return std::nullopt;
    return datagram;
}

bool is_loopback(uint32_t address) {
    return (ntohl(address) >> 24) == 127;
}

Place local_place(uint16_t port, uint64_t secret) {
    Place place{local_host(), port, {}, secret};
    ifaddrs *list = nullptr;
    if (getifaddrs(&list) == 0) {
        const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, freeifaddrs);
        for (const ifaddrs *entry = list; entry != nullptr; entry = entry->ifa_next) {
            if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET || !(entry->ifa_flags & IFF_UP))
                continue;
            sockaddr_in address;
            std::memcpy(&address, entry->ifa_addr, sizeof(address));
            place.addresses.push_back(address.sin_addr.s_addr);
        }
    }
    std::stable_partition(place.addresses.begin(), place.addresses.end(), std::not_fn(is_loopback));
    return place;
}

std::string addresses_of(const Place &place) {
    std::string text;
    for (const uint32_t address : place.addresses) {
        char name[INET_ADDRSTRLEN];
        const in_addr as_struct{address};
        if (inet_ntop(AF_INET, &as_struct, name, sizeof(name)) != nullptr)
            text += fmt::format("{}{}", text.empty() ? "" : " ", name);
    }
    return text;
}

std::string to_text(const Place &place) {
    return fmt::format("{:x} {} {:x} {}", place.host, place.port, place.secret, addresses_of(place));
}

std::optional<Place> parse_place(std::string_view text) {
    std::istringstream words{std::string(text)};
    std::string host, port, secret, word;
    Place place;
    words >> host >> port >> secret;
    const auto whole = [](const std::string &number, auto &value, int base) {
        const char *end = number.data() + number.size();
        const auto result = std::from_chars(number.data(), end, value, base);
        return result.ec == std::errc() && result.ptr == end;
    };
    if (!whole(host, place.host, 16) || !whole(port, place.port, 10) || place.port == 0 ||
        !whole(secret, place.secret, 16))
        return std::nullopt;
    while (words >> word) {
        in_addr address{};
        if (inet_pton(AF_INET, word.c_str(), &address) == 1)
            place.addresses.push_back(address.s_addr);
    }
    return place;
}

std::vector<uint32_t> usable_addresses(const Place &self, const Place &peer) {
    if (self.host == peer.host)
        return peer.addresses;
    std::vector<uint32_t> result;
    for (const uint32_t address : peer.addresses) {
        const bool own = std::find(self.addresses.begin(), self.addresses.end(), address) != self.addresses.end();
        if (!is_loopback(address) && !own)
            result.push_back(address);
    }
    return result;
}

}  // namespace flx::liveness

#include "probe/network.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <new>

namespace flx::probe {
namespace {

namespace fs = std::filesystem;

/// A socket for questions about devices; they need no connection.
class QuerySocket {
  public:
    QuerySocket() {
        descriptor_ = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (descriptor_ < 0)
            descriptor_ = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    }
    QuerySocket(const QuerySocket &) = delete;
    QuerySocket &operator=(const QuerySocket &) = delete;
    ~QuerySocket() {
        if (descriptor_ >= 0)
            close(descriptor_);
    }

    bool ask(unsigned long request, const std::string &device, ifreq &question) const {
        std::strncpy(question.ifr_name, device.c_str(), IFNAMSIZ - 1);
        return descriptor_ >= 0 && ioctl(descriptor_, request, &question) == 0;
    }
    bool ethtool(const std::string &device, void *command) const {
        ifreq question{};
        question.ifr_data = static_cast<char *>(command);
        return ask(SIOCETHTOOL, device, question);
    }

  private:
    int descriptor_ = -1;
};

/// Mbit/s as the driver says; 0: unknown.
double driver_speed(const QuerySocket &socket, const std::string &device) {
    constexpr uint32_t kUnknown = 0xffffffffu;
    // First question: how many words the link-mode masks have (answered as a negative number); second: with them.
    alignas(ethtool_link_settings) std::byte room[sizeof(ethtool_link_settings) + 3 * 127 * sizeof(uint32_t)] = {};
    auto *modern = new (room) ethtool_link_settings{};
    modern->cmd = ETHTOOL_GLINKSETTINGS;
    if (socket.ethtool(device, modern) && modern->link_mode_masks_nwords < 0) {
        const auto words = static_cast<int8_t>(-modern->link_mode_masks_nwords);
        modern = new (room) ethtool_link_settings{};
        modern->cmd = ETHTOOL_GLINKSETTINGS;
        modern->link_mode_masks_nwords = words;
        return socket.ethtool(device, modern) && modern->speed != kUnknown ? modern->speed : 0;
    }
    ethtool_cmd old{};
    old.cmd = ETHTOOL_GSET;
    if (!socket.ethtool(device, &old))
        return 0;
    const uint32_t speed = ethtool_cmd_speed(&old);
    return speed == kUnknown || speed == 0xffff ? 0 : speed;
}

std::string read_line(const fs::path &path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

int read_numa_node(const fs::path &path) {
    const std::string line = read_line(path);
    return line.empty() ? -1 : std::max(-1, std::atoi(line.c_str()));
}

/// Finds the device by the PCI address that its driver names: /sys/bus is the same in all namespaces, /sys/class/net is
/// not.
int find_numa_node(const QuerySocket &socket, const std::string &device) {
    ethtool_drvinfo driver{};
    driver.cmd = ETHTOOL_GDRVINFO;
    if (!socket.ethtool(device, &driver))
        return -1;
    const std::string bus(driver.bus_info, strnlen(driver.bus_info, sizeof driver.bus_info));
    if (bus.empty() || bus.find('/') != std::string::npos)
        return -1;
    return read_numa_node(fs::path("/sys/bus/pci/devices") / bus / "numa_node");
}

int prefix_length(const sockaddr *mask) {
    if (mask == nullptr)
        return 0;
    if (mask->sa_family == AF_INET) {
        in_addr bits;
        std::memcpy(&bits, &reinterpret_cast<const sockaddr_in *>(mask)->sin_addr, sizeof bits);
        return std::popcount(bits.s_addr);
    }
    int length = 0;
    for (const uint8_t byte : reinterpret_cast<const sockaddr_in6 *>(mask)->sin6_addr.s6_addr)
        length += std::popcount(byte);
    return length;
}

bool read_subnet(const ifaddrs &entry, Subnet &subnet) {
    char text[INET6_ADDRSTRLEN] = "";
    const int family = entry.ifa_addr->sa_family;
    const void *address = nullptr;
    if (family == AF_INET)
        address = &reinterpret_cast<const sockaddr_in *>(entry.ifa_addr)->sin_addr;
    else if (family == AF_INET6)
        address = &reinterpret_cast<const sockaddr_in6 *>(entry.ifa_addr)->sin6_addr;
    if (address == nullptr || inet_ntop(family, address, text, sizeof text) == nullptr)
        return false;
    subnet.address = text;
    subnet.prefix = prefix_length(entry.ifa_netmask);
    subnet.network = network_of(subnet.address, subnet.prefix);
    return true;
}

/// Names compare by their numbers' values, so that `eth2` comes before `eth10`.
bool natural_less(const std::string &a, const std::string &b) {
    return strverscmp(a.c_str(), b.c_str()) < 0;
}

/// One port of an RDMA device.
NetworkDevice read_port(const fs::path &folder, const std::string &device, const fs::path &port,
                        const std::vector<NetworkDevice> &ethernet) {
    NetworkDevice result;
    result.name = device + ":" + port.filename().string();
    result.rdma = true;
    const std::string state = read_line(port / "state");  // "4: ACTIVE"
    const auto colon = state.find(": ");
    result.state = colon == std::string::npos ? state : state.substr(colon + 2);
    result.up = result.state == "ACTIVE";
    if (result.up)
        result.state = "up";
    else if (result.state.empty())
        result.state = "unknown";
    result.driver_mbit = std::atof(read_line(port / "rate").c_str()) * 1000;  // "100 Gb/sec (4X EDR)"
    result.numa_node = read_numa_node(folder / "device" / "numa_node");
    if (read_line(port / "link_layer") == "Ethernet") {
        const std::string name = read_line(port / "gid_attrs" / "ndevs" / "0");
        for (const NetworkDevice &candidate : ethernet)
            if (candidate.name == name) {
                result.subnets = candidate.subnets;
                result.mtu = candidate.mtu;
            }
    } else if (const std::string gid = read_line(port / "gids" / "0"); !gid.empty()) {
        // InfiniBand: the upper half of the port's identifier names its subnet, in the form of an IPv6 address.
        if (const std::string network = network_of(gid, 64); !network.empty())
            result.subnets.push_back({gid, 64, network});
    }
    return result;
}

std::vector<fs::path> entries(const fs::path &folder) {
    std::vector<fs::path> paths;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
        paths.push_back(entry->path());
    std::sort(paths.begin(), paths.end(),
              [](const fs::path &a, const fs::path &b) { return natural_less(a.string(), b.string()); });
    return paths;
}

}  // namespace

std::string network_of(const std::string &address, int prefix) {
    for (const int family : {AF_INET, AF_INET6}) {
        uint8_t bytes[16] = {};
        const int width = family == AF_INET ? 32 : 128;
        if (prefix < 0 || prefix > width || inet_pton(family, address.c_str(), bytes) != 1)
            continue;
        for (int bit = prefix; bit < width; ++bit)
            bytes[bit / 8] &= static_cast<uint8_t>(~(0x80u >> (bit % 8)));
        char text[INET6_ADDRSTRLEN] = "";
        inet_ntop(family, bytes, text, sizeof text);
        return fmt::format("{}/{}", text, prefix);
    }
    return {};
}

void rdma_ports(const std::string &root, std::vector<NetworkDevice> &devices) {
    std::vector<NetworkDevice> ports;
    for (const fs::path &folder : entries(root))
        for (const fs::path &port : entries(folder / "ports"))
            ports.push_back(read_port(folder, folder.filename().string(), port, devices));
    devices.insert(devices.end(), ports.begin(), ports.end());
}

Status network_devices(std::vector<NetworkDevice> &devices) {
    ifaddrs *first = nullptr;
    if (getifaddrs(&first) != 0)
        return fail(Fault::machine_not_read, "cannot list the network devices: getifaddrs: {}", std::strerror(errno));
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> list(first, &freeifaddrs);

    const QuerySocket socket;
    std::map<std::string, NetworkDevice> found;
    for (const ifaddrs *entry = first; entry != nullptr; entry = entry->ifa_next) {
        // An address with a label (`eth0:1`) belongs to the device before the colon.
        const std::string name = std::string(entry->ifa_name).substr(0, std::string(entry->ifa_name).find(':'));
        const auto [position, added] = found.try_emplace(name);
        NetworkDevice &device = position->second;
        if (added) {
            device.name = name;
            device.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
            const bool on = (entry->ifa_flags & IFF_UP) != 0;
            device.up = on && (entry->ifa_flags & IFF_RUNNING) != 0;
            device.state = device.up ? "up" : on ? "no carrier" : "down";
            ifreq question{};
            if (socket.ask(SIOCGIFMTU, name, question))
                device.mtu = question.ifr_mtu;
            if (!device.loopback) {
                device.driver_mbit = driver_speed(socket, name);
                device.numa_node = find_numa_node(socket, name);
            }
        }
        Subnet subnet;
        if (entry->ifa_addr != nullptr && read_subnet(*entry, subnet))
            device.subnets.push_back(subnet);
    }

    std::vector<NetworkDevice> result;
    for (auto &[name, device] : found)
        result.push_back(std::move(device));
    rdma_ports("/sys/class/infiniband", result);
    std::sort(result.begin(), result.end(),
              [](const NetworkDevice &a, const NetworkDevice &b) { return natural_less(a.name, b.name); });
    devices = std::move(result);
    return {};
}

std::vector<std::string> describe(const NetworkDevice &device) {
    std::string text = fmt::format("{:<12} {:<10}", device.name, device.state);
    const auto add = [&text](const std::string &fact, int width) { text += fmt::format("  {:<{}}", fact, width); };
    add(device.rdma ? "rdma" : device.loopback ? "loopback" : "ethernet", 8);
    add(device.mtu > 0 ? fmt::format("mtu {}", device.mtu) : "", 9);
    add(device.driver_mbit > 0 ? fmt::format("{:.0f} Mbit/s", device.driver_mbit) : "", 13);
    add(device.numa_node >= 0 ? fmt::format("NUMA node {}", device.numa_node) : "", 11);
    std::vector<std::string> addresses;
    for (const Subnet &subnet : device.subnets)
        addresses.push_back(fmt::format("{}/{}", subnet.address, subnet.prefix));
    text += fmt::format("  {}", addresses.empty() ? "no address" : fmt::format("{}", fmt::join(addresses, ", ")));
    return {text};
}

}  // namespace flx::probe

#include "probe/rail_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "probe/loose_ends.h"

namespace flx::probe {
namespace {

/// One entry of FLX_RAILS.
struct Entry {
    std::string tls;
    std::string device;
};

/// A device that a host would open a rail on, or the reason why it would not.
struct Pick {
    RailCandidate rail;
    std::string network;  ///< identity before numbering
    std::string address;
    bool local = false;  ///< can reach only its own host
    std::string why_not;
};

constexpr const char *kSelectionHelp =
    "FLX_RAILS is a list such as `tcp/eth0,rc+ud/mlx5_0:1,posix/memory` (transports joined by `+`, `/`, device)";

Status parse_selection(const std::string &text, std::vector<Entry> &entries) {
    std::stringstream stream(text);
    for (std::string part; std::getline(stream, part, ',');) {
        part.erase(0, part.find_first_not_of(' '));
        part.erase(part.find_last_not_of(' ') + 1);
        const auto slash = part.find('/');
        if (slash == std::string::npos || slash == 0 || slash + 1 == part.size())
            return fail(Fault::rail_selection, "FLX_RAILS: cannot read `{}`: {}", part, kSelectionHelp);
        Entry entry{part.substr(0, slash), part.substr(slash + 1)};
        std::replace(entry.tls.begin(), entry.tls.end(), '+', ',');
        for (const Entry &other : entries)
            if (other.device == entry.device && other.tls == entry.tls)
                return fail(Fault::rail_selection, "FLX_RAILS names `{}` twice; each may be named once", part);
        entries.push_back(std::move(entry));
    }
    if (entries.empty())
        return fail(Fault::rail_selection, "FLX_RAILS names no rail: {}", kSelectionHelp);
    return {};
}

/// Whether UCX can put into remote memory by one of these transports.
bool has_put(const std::string &tls) {
    std::stringstream stream(tls);
    for (std::string transport; std::getline(stream, transport, ',');)
        for (const char *put : {"rc", "rc_x", "rc_v", "rc_verbs", "rc_mlx5", "dc", "dc_x", "dc_mlx5", "ib", "posix",
                                "sysv", "xpmem", "cma", "knem", "shm", "sm", "mm"})
            if (transport == put)
                return true;
    return false;
}

bool is_ipv4(const Subnet &subnet) {
    return subnet.address.find(':') == std::string::npos;
}

bool is_link_local(const Subnet &subnet) {
    if (is_ipv4(subnet))
        return subnet.address.rfind("169.254.", 0) == 0;
    const std::string start = subnet.address.substr(0, 3);  // fe80::/10
    return start == "fe8" || start == "fe9" || start == "fea" || start == "feb";
}

/// The address that a rail over `device` is known by. InfiniBand's networks look link-local and are not.
std::optional<Subnet> primary(const NetworkDevice &device) {
    std::optional<Subnet> best;
    int best_rank = 0;
    for (const Subnet &subnet : device.subnets) {
        if (subnet.network.empty() || (!device.rdma && is_link_local(subnet)))
            continue;
        // An address that is alone in its network (/32) says least about who is near: only if there is no other.
        const bool alone = subnet.prefix == (is_ipv4(subnet) ? 32 : 128);
        const int rank = (alone ? 0 : 2) + (is_ipv4(subnet) ? 2 : 1);
        if (rank > best_rank) {
            best_rank = rank;
            best = subnet;
        }
    }
    return best;
}

/// What a host would do with its `device`.
Pick consider(const NetworkDevice &device, const std::string &tls) {
    Pick pick;
    pick.rail.name = device.name;
    pick.rail.device = device.name;
    pick.rail.tls = !tls.empty() ? tls : device.rdma ? "rc,ud" : "tcp";
    pick.rail.rma = has_put(pick.rail.tls);
    pick.rail.numa_node = device.numa_node;
    if (!device.up) {
        pick.why_not = device.state.empty() || device.state == "up" ? "down" : device.state;
        return pick;
    }
    const std::string kind = device.rdma ? "rdma" : "tcp";
    const auto subnet = primary(device);
    if (device.loopback) {
        pick.local = true;
        pick.network = fmt::format("{} loopback", kind);
    } else if (subnet) {
        const bool alone = subnet->prefix == (is_ipv4(*subnet) ? 32 : 128);
        // Clouds hand out /32 addresses and route between them.
        pick.network = fmt::format("{} {}", kind, alone ? "routed" : subnet->network);
        pick.address = subnet->address;
    } else if (device.rdma) {
        pick.network = "rdma unnamed";
    }
    if (pick.network.empty() || (device.loopback && device.subnets.empty()))
        pick.why_not = device.subnets.empty() ? "no address" : "only link-local addresses";
    return pick;
}

/// A host's picks, numbered where several are on one network, in order of the devices.
std::vector<Pick> pick_rails(const HostDevices &host, const std::vector<Entry> &selection) {
    std::vector<Pick> picks;
    if (selection.empty())
        for (const NetworkDevice &device : host.devices)
            picks.push_back(consider(device, ""));
    for (const Entry &entry : selection) {
        const auto device = std::find_if(host.devices.begin(), host.devices.end(),
                                         [&](const NetworkDevice &known) { return known.name == entry.device; });
        Pick pick;
        if (device != host.devices.end()) {
            pick = consider(*device, entry.tls);
        } else {
            pick.rail.name = entry.device;
            pick.rail.device = entry.device;
            pick.rail.tls = entry.tls;
            pick.rail.rma = has_put(entry.tls);
            if (entry.device == "memory") {
                pick.rail.name = "ucx-shm";
                pick.local = true;
                pick.network = fmt::format("{} memory", entry.tls);
            } else {
                pick.why_not = "no such device on this host";
            }
        }
        picks.push_back(std::move(pick));
    }

    std::map<std::string, int> on_network;
    std::map<std::string, int> named;
    for (Pick &pick : picks) {
        if (!pick.why_not.empty())
            continue;
        // Two rails of one name (say `posix/memory` and `cma/memory`) are told apart by their number.
        if (const int number = ++named[pick.rail.name]; number > 1)
            pick.rail.name += fmt::format("#{}", number);
        const int number = ++on_network[pick.network];
        pick.rail.identity = number == 1 ? pick.network : fmt::format("{} #{}", pick.network, number);
    }
    return picks;
}

bool has_identity(const std::vector<Pick> &picks, const std::string &identity) {
    return std::any_of(picks.begin(), picks.end(), [&](const Pick &pick) {
        return pick.why_not.empty() && !pick.local && pick.rail.identity == identity;
    });
}

/// Whether rail `mine` of one host and a rail of another host are ends of one rail. `clash`: they would be, but both
/// have the same address.
bool connects(const Pick &mine, const std::vector<Pick> &theirs, bool &clash) {
    if (mine.local)
        return false;
    for (const Pick &pick : theirs) {
        if (!pick.why_not.empty() || pick.local || pick.rail.identity != mine.rail.identity)
            continue;
        if (pick.address.empty() || pick.address != mine.address)
            return true;
        clash = true;
    }
    return false;
}

nlohmann::json device_to_json(const NetworkDevice &device) {
    nlohmann::json subnets = nlohmann::json::array();
    for (const Subnet &subnet : device.subnets)
        subnets.push_back({subnet.address, subnet.prefix});
    return {{"name", device.name},      {"rdma", device.rdma},        {"loopback", device.loopback},
            {"up", device.up},          {"state", device.state},      {"mtu", device.mtu},
            {"numa", device.numa_node}, {"mbit", device.driver_mbit}, {"subnets", subnets}};
}

NetworkDevice device_from_json(const nlohmann::json &json) {
    NetworkDevice device;
    device.name = json.at("name").get<std::string>();
    device.rdma = json.at("rdma").get<bool>();
    device.loopback = json.at("loopback").get<bool>();
    device.up = json.at("up").get<bool>();
    device.state = json.at("state").get<std::string>();
    device.mtu = json.at("mtu").get<int>();
    device.numa_node = json.at("numa").get<int>();
    device.driver_mbit = json.at("mbit").get<double>();
    for (const auto &subnet : json.at("subnets")) {
        Subnet read;
        read.address = subnet.at(0).get<std::string>();
        read.prefix = subnet.at(1).get<int>();
        read.network = network_of(read.address, read.prefix);
        device.subnets.push_back(std::move(read));
    }
    return device;
}

}  // namespace

Status plan_rails(std::span<const HostDevices> hosts, size_t self, const std::string &selection, size_t max_rails,
                  RailPlan &plan) {
    plan = {};
    std::vector<Entry> entries;
    if (!selection.empty())
        FLX_TRY(parse_selection(selection, entries));
    if (self >= hosts.size())
        return fail(Fault::wrong_inside,
                    "host {} of {} hosts does not exist; this is a mistake in FLX, please report it", self,
                    hosts.size());

    std::vector<std::vector<Pick>> picks;
    for (const HostDevices &host : hosts)
        picks.push_back(pick_rails(host, entries));

    for (Pick &pick : picks[self]) {
        if (!pick.why_not.empty()) {
            plan.left_off.emplace_back(pick.rail.name, pick.why_not);
            continue;
        }
        pick.rail.reaches.assign(hosts.size(), false);
        pick.rail.reaches[self] = hosts[self].ranks > 1;
        bool reaches_others = false;
        bool clash = false;
        for (size_t host = 0; host < hosts.size(); ++host)
            if (host != self && connects(pick, picks[host], clash)) {
                pick.rail.reaches[host] = true;
                reaches_others = true;
            }
        // Between ranks of one host all devices are the same path as loopback, so with other hosts about a device that
        // none of them shares is of no use; one that the user named stays.
        const bool keep = reaches_others || (hosts[self].ranks > 1 && (pick.local || hosts.size() == 1));
        const bool named = !entries.empty() && hosts[self].ranks > 1;
        std::string why;
        if (!keep && !named) {
            if (pick.local || hosts.size() == 1)
                why = "no other rank on this host";
            else if (clash)
                why = fmt::format("a private network of this host: others have the same address {}", pick.address);
            else
                why = fmt::format("no other host is on its network ({})", pick.rail.identity);
        } else if (plan.rails.size() >= max_rails) {
            why = fmt::format("more than {} rails", max_rails);
        }
        if (why.empty())
            plan.rails.push_back(std::move(pick.rail));
        else
            plan.left_off.emplace_back(pick.rail.name, why);
    }
    return {};
}

std::vector<LooseEnd> loose_ends(std::span<const HostDevices> hosts, size_t self, const std::string &selection) {
    std::vector<LooseEnd> ends;
    std::vector<Entry> entries;
    if (self >= hosts.size() || (!selection.empty() && !parse_selection(selection, entries).ok()))
        return ends;
    std::vector<std::vector<Pick>> picks;
    for (const HostDevices &host : hosts)
        picks.push_back(pick_rails(host, entries));
    for (const Pick &pick : picks[self]) {
        if (!pick.why_not.empty() || pick.local || pick.address.empty() || pick.rail.tls != "tcp")
            continue;
        const bool everywhere = std::all_of(
            picks.begin(), picks.end(), [&](const auto &theirs) { return has_identity(theirs, pick.rail.identity); });
        if (everywhere)
            continue;
        ends.push_back({pick.rail, pick.address});
        ends.back().rail.reaches.assign(hosts.size(), false);
        ends.back().rail.reaches[self] = hosts[self].ranks > 1;
    }
    return ends;
}

std::vector<std::string> join_ends(std::span<const OfferedEnd> ends, const Reached &reached) {
    struct Group {
        std::vector<size_t> ends;
        std::string identity;
    };
    std::vector<Group> groups;  // of one network each
    for (size_t end = 0; end < ends.size(); ++end) {
        auto group = std::find_if(groups.begin(), groups.end(),
                                  [&](const Group &other) { return other.identity == ends[end].identity; });
        if (group == groups.end())
            group = groups.insert(groups.end(), Group{{}, ends[end].identity});
        group->ends.push_back(end);
    }
    std::vector<Group> rails;
    for (Group &group : groups) {
        Group *best = nullptr;
        size_t most = 0;
        for (Group &rail : rails) {
            size_t ways = 0;  // twice as many, and one for the name
            bool meets = false;
            for (const size_t a : rail.ends)
                for (const size_t b : group.ends) {
                    ways += reached[a][b] && reached[b][a] ? 2 : 0;
                    meets = meets || ends[a].host == ends[b].host;
                }
            if (ways == 0 || meets)
                continue;
            ways += ends[rail.ends.front()].name == ends[group.ends.front()].name ? 1 : 0;
            if (ways > most) {
                best = &rail;
                most = ways;
            }
        }
        if (best != nullptr)
            best->ends.insert(best->ends.end(), group.ends.begin(), group.ends.end());
        else
            rails.push_back(std::move(group));
    }
    std::vector<std::string> identities(ends.size());
    for (const Group &rail : rails)
        for (const size_t end : rail.ends)
            identities[end] = rail.identity;
    return identities;
}

void join_rails(size_t self, std::span<const LooseEnd> own, std::span<const OfferedEnd> ends, const Reached &reached,
                std::span<const std::string> why, size_t max_rails, RailPlan &plan) {
    const std::vector<std::string> identities = join_ends(ends, reached);
    for (size_t end = 0; end < ends.size(); ++end) {
        if (ends[end].host != self)
            continue;
        const auto loose = std::find_if(own.begin(), own.end(),
                                        [&](const LooseEnd &each) { return each.rail.name == ends[end].name; });
        if (loose == own.end())
            continue;
        auto rail = std::find_if(plan.rails.begin(), plan.rails.end(),
                                 [&](const RailCandidate &known) { return known.name == ends[end].name; });
        const auto off = std::find_if(plan.left_off.begin(), plan.left_off.end(),
                                      [&](const auto &known) { return known.first == ends[end].name; });
        std::vector<bool> reaches(loose->rail.reaches.size());
        for (size_t other = 0; other < ends.size(); ++other)
            if (ends[other].host != self && identities[other] == identities[end] && reached[end][other] &&
                reached[other][end])
                reaches[ends[other].host] = true;
        const bool joined = std::find(reaches.begin(), reaches.end(), true) != reaches.end();
        if (rail == plan.rails.end() && joined && plan.rails.size() < max_rails) {
            rail = plan.rails.insert(plan.rails.end(), loose->rail);
            if (off != plan.left_off.end())
                plan.left_off.erase(off);
        } else if (rail == plan.rails.end() && off != plan.left_off.end() && !why[end].empty()) {
            off->second += "; " + why[end];
        }
        if (rail == plan.rails.end())
            continue;
        rail->identity = identities[end];
        for (size_t host = 0; host < reaches.size(); ++host)
            if (reaches[host])
                rail->reaches[host] = true;
    }
}

std::string to_text(const HostDevices &host) {
    nlohmann::json devices = nlohmann::json::array();
    for (const NetworkDevice &device : host.devices)
        devices.push_back(device_to_json(device));
    const nlohmann::json json = {{"host", host.host}, {"ranks", host.ranks}, {"devices", devices}};
    // Names that are no UTF-8 must not throw.
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Status parse_host_devices(const std::string &text, HostDevices &host) {
    try {
        const auto json = nlohmann::json::parse(text);
        HostDevices read;
        read.host = json.at("host").get<std::string>();
        read.ranks = json.at("ranks").get<int>();
        for (const auto &device : json.at("devices"))
            read.devices.push_back(device_from_json(device));
        host = std::move(read);
        return {};
    } catch (const nlohmann::json::exception &error) {
        return fail(Fault::not_readable, "a rank's list of network devices cannot be read: {}", error.what());
    }
}

void group_hosts(std::span<const HostDevices> by_rank, std::vector<HostDevices> &hosts,
                 std::vector<int> &host_of_rank) {
    hosts.clear();
    host_of_rank.clear();
    std::map<std::string, int> known;
    for (const HostDevices &rank : by_rank) {
        const auto [position, added] = known.try_emplace(rank.host, static_cast<int>(hosts.size()));
        if (added) {
            hosts.push_back(rank);
            hosts.back().ranks = 0;
        }
        ++hosts[static_cast<size_t>(position->second)].ranks;
        host_of_rank.push_back(position->second);
    }
}

}  // namespace flx::probe

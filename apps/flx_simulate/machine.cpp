#include "apps/flx_simulate/machine.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <vector>

#include "runtime/link/link.h"

namespace flx::simulate {
namespace {

using algorithms::Level;

/// Reads fields of one table, and keeps the first thing that is wrong.
class Fields {
  public:
    Fields(const toml::table *table, std::string name, std::string &problem)
        : table_(table), name_(std::move(name)), problem_(problem) {}
    /// Tables in the table, which others read.
    void has_tables(std::vector<std::string> names) { known_tables_ = std::move(names); }
    Fields(const Fields &) = delete;
    Fields &operator=(const Fields &) = delete;
    /// Fields that nobody asked for are typing mistakes.
    ~Fields() {
        if (table_ == nullptr)
            return;
        const auto has = [](const std::vector<std::string> &names, std::string_view name) {
            return std::ranges::find(names, name) != names.end();
        };
        for (const auto &[key, value] : *table_)
            if (value.is_table() && !has(known_tables_, key.str()) && !known_tables_.empty())
                wrong(fmt::format("has no table [{}]; there are [{}]", key.str(), fmt::join(known_tables_, "], [")));
            else if (!value.is_table() && !has(known_, key.str()))
                wrong(fmt::format("has no field {}; there are {}", key.str(), fmt::join(known_, " ")));
            else if (value.is_table() && known_tables_.empty())
                wrong(fmt::format("has a table {}, and there are only fields: {}", key.str(), fmt::join(known_, " ")));
    }

    double number(const char *key, double otherwise, double least, double most) {
        note(key);
        if (table_ == nullptr || !table_->contains(key))
            return otherwise;
        const auto value = (*table_)[key].value<double>();
        if (!value || !(*value >= least && *value <= most)) {  // nor NaN
            wrong(fmt::format("has {} that is no number from {} to {}", key, least, most));
            return otherwise;
        }
        return *value;
    }
    /// One for each of `count`: an array of so many, or a number for all.
    std::vector<double> numbers(const char *key, double otherwise, double least, double most, int count) {
        const toml::array *array = table_ == nullptr ? nullptr : (*table_)[key].as_array();
        if (array == nullptr)
            return std::vector(static_cast<size_t>(count), number(key, otherwise, least, most));
        note(key);
        std::vector<double> values;
        for (const toml::node &node : *array) {
            const auto value = node.value<double>();
            if (value && *value >= least && *value <= most)
                values.push_back(*value);
        }
        if (values.size() != array->size() || values.size() != static_cast<size_t>(count)) {
            wrong(fmt::format("has {} that is no list of {} numbers from {} to {}", key, count, least, most));
            values.assign(static_cast<size_t>(count), otherwise);
        }
        return values;
    }
    int count(const char *key, int otherwise, int least, int most) {
        note(key);
        if (table_ == nullptr || !table_->contains(key))
            return otherwise;
        const auto value = (*table_)[key].value_exact<int64_t>();
        if (!value || *value < least || *value > most) {
            wrong(fmt::format("has {} that is no whole number from {} to {}", key, least, most));
            return otherwise;
        }
        return static_cast<int>(*value);
    }
    std::string text(const char *key, const char *otherwise) {
        note(key);
        if (table_ == nullptr || !table_->contains(key))
            return otherwise;
        const auto value = (*table_)[key].value_exact<std::string>();
        if (!value)
            wrong(fmt::format("has {} that is no text", key));
        else if (std::ranges::any_of(*value, [](unsigned char one) { return one < ' ' || one == 0x7F; }))
            wrong(fmt::format("has {} with a control character; a text is one line of printed characters", key));
        return value.value_or(otherwise);
    }
    void wrong(const std::string &what) {
        if (problem_.empty())
            problem_ = fmt::format("{} {}", name_, what);
    }

  private:
    void note(const char *key) { known_.emplace_back(key); }

    const toml::table *table_;
    std::string name_;
    std::string &problem_;
    std::vector<std::string> known_;
    std::vector<std::string> known_tables_;
};

using nlohmann::json;

/// Numbers of an array; what is none is a text, which no field takes there.
toml::array array_of(const json &values) {
    toml::array array;
    for (const json &value : values) {
        if (value.is_number())
            array.push_back(value.get<double>());
        else
            array.push_back("no number");
    }
    return array;
}

/// JSON as if it had been written in TOML. What no field takes, tables in tables, stays empty; null, which TOML has
/// not, is a text.
toml::table table_of(const json &object, bool has_tables) {
    toml::table table;
    for (const auto &[key, value] : object.items()) {
        if (value.is_object())
            table.insert_or_assign(key, has_tables ? table_of(value, false) : toml::table());
        else if (value.is_array())
            table.insert_or_assign(key, array_of(value));
        else if (value.is_boolean())
            table.insert_or_assign(key, value.get<bool>());
        else if (value.is_number_integer())
            table.insert_or_assign(key, value.get<int64_t>());
        else if (value.is_number())
            table.insert_or_assign(key, value.get<double>());
        else
            table.insert_or_assign(key, value.is_string() ? value.get<std::string>() : "null");
    }
    return table;
}

/// TOML never begins with a brace; with a bracket it may, and [1] is both. A sentence: what is wrong; empty:
/// nothing.
std::string read_table(std::string_view text, const std::string &path, toml::table &table) {
    const size_t first = text.find_first_not_of(" \t\r\n");
    if (first != std::string_view::npos && text[first] == '{') {
        try {
            table = table_of(json::parse(text), true);
        } catch (const json::parse_error &error) {
            const auto line = 1 + std::ranges::count(text.substr(0, error.byte), '\n');
            return fmt::format("{}:{}: this is no JSON, though it begins with a brace", path, line);
        } catch (const json::exception &error) {
            return fmt::format("{}: this JSON cannot be read: {}", path, error.what());
        }
        return {};
    }
    if (first != std::string_view::npos && text[first] == '[' && json::accept(text))
        return fmt::format("{}: this is an array of JSON, and a machine is an object, which begins with a brace", path);
    try {
        table = toml::parse(text);
    } catch (const toml::parse_error &error) {
        return fmt::format("{}:{}: {}", path, error.source().begin.line, error.description());
    }
    return {};
}

constexpr double kMostNs = 1e9;
constexpr double kLeastRate = 1e-6;  // GB/s
constexpr double kMostRate = 1e5;
constexpr int kMostHosts = 1 << 16;
constexpr double kMostTaper = 1000;

void read_near(const toml::table &all, Machine &machine, std::string &problem) {
    Fields near(all["near"].as_table(), "[near]", problem);
    algorithms::TierCost &tier = machine.costs.near;
    tier.latency_ns = near.number("latency_ns", 300, 0, kMostNs);
    tier.send_ns = near.number("send_ns", 150, 0, kMostNs);
    tier.receive_ns = near.number("receive_ns", 150, 0, kMostNs);
    tier.bytes_per_ns = near.number("bandwidth", 8, kLeastRate, kMostRate);
    machine.costs.copy_bytes_per_ns = near.number("copy", 8, kLeastRate, kMostRate);
    machine.costs.add_bytes_per_ns = near.number("add", 10, kLeastRate, kMostRate);
    machine.together = near.number("together", 0, 0, kMostRate);
    machine.costs.wait_ns = near.number("wait_ns", 300, 0, kMostNs);
    machine.costs.wait_rank_ns = near.number("wait_rank_ns", 150, 0, kMostNs);
}

void read_far(const toml::table &all, Machine &machine, std::string &problem) {
    Fields far(all["far"].as_table(), "[far]", problem);
    constexpr int kMostRails = 1024;
    machine.rails = far.count("rails", 1, 1, kMostRails);
    algorithms::TierCost &tier = machine.costs.far;
    tier.latency_ns = far.number("latency_ns", 2000, 0, kMostNs);
    tier.send_ns = far.number("send_ns", 1500, 0, kMostNs);
    tier.receive_ns = far.number("receive_ns", 1500, 0, kMostNs);
    machine.rates = far.numbers("bandwidth", 25, kLeastRate, kMostRate, machine.rails);
    // A message goes over all rails of its host, each with its share.
    tier.bytes_per_ns = std::accumulate(machine.rates.begin(), machine.rates.end(), 0.0);
    machine.costs.alone_ns = far.number("alone_ns", 0, 0, kMostNs);
    machine.crowd = far.number("crowd", 0, 0, 10);
    machine.burst = far.number("burst", 0, 0, kMostRate);
    if (machine.burst != 0 && machine.burst < kLeastRate)
        far.wrong(fmt::format("has a burst of {}; it is 0, or a rate from {} on", machine.burst, kLeastRate));
    if (machine.burst != 0 && machine.rails > kMaxLinks)
        far.wrong(fmt::format("has burst and {} rails; with burst there are {} at most", machine.rails, kMaxLinks));
}

/// Groups of hosts and what leads out of them, by the kind of network.
void read_network(const toml::table &all, Machine &machine, std::string &problem) {
    Fields network(all["network"].as_table(), "[network]", problem);
    const std::string kind = network.text("kind", "flat");
    const auto level = [&](const char *hosts, int otherwise) {
        return Level{.hosts = network.count(hosts, otherwise, 1, kMostHosts),
                     .taper = network.number("taper", 1, 1, kMostTaper),
                     .latency_ns = network.number("hop_ns", 500, 0, kMostNs)};
    };
    if (kind == "flat") {
        machine.network = "one switch";
    } else if (kind == "fat-tree") {
        const Level leaf = level("leaf", 32);
        machine.fabric.levels = {leaf};
        machine.network = fmt::format("fat tree, {} hosts a leaf, {:g}:1", leaf.hosts, leaf.taper);
        if (const int pod = network.count("pod", 0, 0, kMostHosts); pod > 0) {
            const double taper = network.number("pod_taper", 1, 1, kMostTaper);
            if (pod % leaf.hosts != 0)
                network.wrong(fmt::format("has pod = {}, which is no multiple of leaf = {}", pod, leaf.hosts));
            machine.fabric.levels.push_back({pod, leaf.taper * taper, leaf.latency_ns});
            machine.network += fmt::format(", {} a pod, {:g}:1", pod, taper);
        }
    } else if (kind == "rail-optimised") {
        // Each rail has leaves of its own. What leaves by one arrives by the same, so only distance costs.
        const Level leaf = level("leaf", 256);
        machine.fabric.levels = {leaf};
        machine.network = fmt::format("rail-optimised, {} hosts a leaf of each rail, {:g}:1", leaf.hosts, leaf.taper);
    } else if (kind == "dragonfly") {
        // Traffic of neighbouring groups takes a detour over a third one, where it loads what leads out of groups
        // twice.
        Level group = level("group", 64);
        group.taper *= network.number("detour", 2, 1, 2);
        machine.fabric.levels = {group};
        machine.network = fmt::format("dragonfly, {} hosts a group, {:g}:1 with detours", group.hosts, group.taper);
    } else {
        network.wrong(fmt::format("has kind \"{}\"; there are flat, fat-tree, rail-optimised, dragonfly", kind));
    }
}

}  // namespace

algorithms::Placement Machine::placement() const {
    std::vector<int> host_of;
    for (int host = 0; host < hosts; ++host)
        host_of.insert(host_of.end(), static_cast<size_t>(ranks), host);
    return algorithms::Placement::of(host_of);
}

std::string parse_machine(std::string_view text, const std::string &path, Machine &machine) {
    toml::table all;
    if (std::string problem = read_table(text, path, all); !problem.empty())
        return problem;
    std::string problem;
    {
        constexpr int kMostRanks = 1024;
        Fields top(&all, "it", problem);
        top.has_tables({"near", "far", "network"});
        machine.name = top.text("name", "a machine");
        machine.hosts = top.count("hosts", 2, 1, kMostHosts);
        machine.ranks = top.count("ranks", 8, 1, kMostRanks);
    }
    read_near(all, machine, problem);
    read_far(all, machine, problem);
    read_network(all, machine, problem);
    const auto tapers = [](const Level &level) { return level.taper > 1; };
    if (problem.empty() && machine.burst != 0 && std::ranges::any_of(machine.fabric.levels, tapers))
        problem = "[far] has burst, and [network] a taper; what shapers let pass is known on networks without one";
    if (problem.empty())
        problem = too_many_ranks(machine);
    return problem.empty() ? problem : fmt::format("{}: {}", path, problem);
}

std::string too_many_ranks(const Machine &machine) {
    constexpr int kMostRanks = 1 << 18;
    if (machine.size() <= kMostRanks)
        return {};
    return fmt::format("{} hosts of {} ranks are {} ranks, and there may be no more than {}", machine.hosts,
                       machine.ranks, machine.size(), kMostRanks);
}

std::string read_machine(const std::string &path, Machine &machine) {
    std::error_code error;
    if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error))
        return fmt::format("{}: this is no machine, as it is no regular file", path);
    std::ifstream file(path, std::ios::binary);
    if (!file.is_open())
        return fmt::format("{}: this file cannot be read", path);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    return parse_machine(text, path, machine);
}

}  // namespace flx::simulate

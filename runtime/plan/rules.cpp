#include "runtime/plan/rules.h"

#include <algorithm>
#include <fstream>
#include <string_view>

#include "algorithms/registry.h"
#include "runtime/base/config.h"
#include "runtime/plan/staged.h"
#include "runtime/schedules/loaded.h"

namespace flx {

using algorithms::Collective;

namespace {

constexpr std::string_view kFile = "file:";

/// Whether there is something to choose. allgatherv and reduce_scatter take what allgather and reduce_scatter_block
/// take, and send_recv is messages and nothing else.
bool is_chosen_for(const algorithms::Traits &traits) {
    return traits.schedules.value_or(traits.collective) == traits.collective &&
           (!traits.between_pairs || may_stage_messages(traits.collective));
}

std::string known_collectives() {
    std::string names;
    for (const algorithms::Traits &traits : algorithms::kTraits)
        if (is_chosen_for(traits))
            names += fmt::format("{}{}", names.empty() ? "" : ", ", traits.name);
    return names;
}

/// `why`: what is wrong with it.
Status malformed(std::string_view entry, std::string_view why) {
    return fail(
        Fault::algorithm_rule,
        "FLX_ALGORITHM has \"{}\", {}; entries are collective:algorithm, collective:algorithm@FROM-TO (bytes, K, M "
        "and G allowed, either may be missing, less than TO), collective:file:SCHEDULE or file:PATH, separated by "
        "commas, with one of {}",
        entry, why, known_collectives());
}

/// Why there are no rules for it.
std::string no_choice_for(std::string_view name) {
    const std::optional<Collective> collective = algorithms::parse_collective(name);
    if (!collective)
        return fmt::format("and \"{}\" is no collective", name);
    if (const auto same = algorithms::scheduled_as(*collective))
        return fmt::format("and {} takes what {} does", name, algorithms::name_of(*same));
    return fmt::format("and {} is messages between pairs of ranks, with no algorithm to choose", name);
}

Status parse_sizes(Rule &rule, std::string_view sizes) {
    const size_t dash = sizes.find('-');
    const auto parse = [&](std::string_view text, size_t &bytes) {
        return text.empty() || parse_size(text, bytes).ok();
    };
    if (dash == std::string_view::npos || sizes.size() == 1 || !parse(sizes.substr(0, dash), rule.from) ||
        !parse(sizes.substr(dash + 1), rule.end))
        return malformed(rule.entry, "where sizes are FROM-TO, as 64K-1M, 64K- or -1M");
    if (rule.from >= rule.end)
        return fail(Fault::algorithm_rule,
                    "FLX_ALGORITHM has \"{}\", which covers no size: it begins at {} and ends before {}", rule.entry,
                    rule.from, rule.end);
    return {};
}

Status parse_rule(std::string_view entry, Rule &rule) {
    rule = {};
    rule.entry = entry;
    const size_t colon = entry.find(':');
    if (colon == std::string_view::npos)
        return malformed(entry, "which does not say for which collective");
    const std::optional<Collective> collective = algorithms::parse_collective(entry.substr(0, colon));
    if (!collective || !is_chosen_for(algorithms::traits_of(*collective)))
        return malformed(entry, no_choice_for(entry.substr(0, colon)));
    rule.collective = *collective;
    const size_t at = std::min(entry.find('@', colon), entry.size());
    rule.name = entry.substr(colon + 1, at - colon - 1);
    if (at == entry.size())
        return {};
    if (may_stage_messages(rule.collective))
        return malformed(entry, fmt::format("and {} goes by the lengths of its messages, which only their ends know, "
                                            "so a rule for it has no sizes",
                                            algorithms::name_of(rule.collective)));
    return parse_sizes(rule, entry.substr(at + 1));
}

template <typename Each>
Status for_each_entry(std::string_view text, Each &&each) {
    for (size_t begin = 0; begin < text.size();) {
        // Names of composed algorithms have commas of their own, in brackets.
        size_t end = begin;
        for (int depth = 0; end < text.size() && (text[end] != ',' || depth > 0); ++end)
            depth += text[end] == '(' ? 1 : text[end] == ')' ? -1 : 0;
        FLX_TRY(each(text.substr(begin, end - begin)));
        begin = end + 1;
    }
    return {};
}

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kBlank = " \t\r";
    text = text.substr(0, text.find('#'));
    text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
    return text.substr(0, text.find_last_not_of(kBlank) + 1);
}

void append(std::string &rules, std::string_view entry) {
    rules.append(rules.empty() ? "" : ",").append(entry);
}

/// As it is, but with the key of its schedules where it names a file that has them.
Status append_read(std::string &rules, std::string_view entry, bool prove) {
    const size_t colon = entry.find(':');
    if (colon == std::string_view::npos || !entry.substr(colon + 1).starts_with(kFile)) {
        append(rules, entry);
        return {};
    }
    Rule rule;
    FLX_TRY(parse_rule(entry, rule));
    const std::string path = rule.name.substr(kFile.size());
    const schedules::Loaded *loaded = nullptr;
    FLX_TRY(schedules::load(path, prove, loaded));
    if (loaded->written.collective != rule.collective)
        return fail(Fault::algorithm_rule, "FLX_ALGORITHM has \"{}\", and {} has schedules of {}", entry, path,
                    algorithms::name_of(loaded->written.collective));
    const size_t sizes = std::min(entry.find('@', colon), entry.size());
    append(rules,
           fmt::format("{}:{}{}{}", algorithms::name_of(rule.collective), kFile, loaded->key, entry.substr(sizes)));
    return {};
}

Status read_file(const std::string &path, std::string &rules, bool prove) {
    std::ifstream file(path);
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
        const std::string_view entry = trimmed(line);
        if (entry.empty())
            continue;
        Rule rule;
        if (const Status status = parse_rule(entry, rule); !status.ok())
            return status.behind(fmt::format("{}, line {}: ", path, number));
        FLX_TRY(append_read(rules, entry, prove));
    }
    if (!file.eof())  // as with one that is not there, or a folder
        return fail(Fault::rule_file, "FLX_ALGORITHM has \"{}{}\", a file that cannot be read", kFile, path);
    return {};
}

}  // namespace

Status parse_rules(const std::string &text, std::vector<Rule> &rules) {
    rules.clear();
    return for_each_entry(text, [&](std::string_view entry) { return parse_rule(entry, rules.emplace_back()); });
}

Status read_rule_files(const std::string &text, std::string &rules, bool prove) {
    rules.clear();
    return for_each_entry(text, [&](std::string_view entry) {
        if (entry.starts_with(kFile))
            return read_file(std::string(entry.substr(kFile.size())), rules, prove);
        return append_read(rules, entry, prove);
    });
}

}  // namespace flx

/// \file json_reader.cpp
/// Schedules from JSON. Steps become data as soon as each is read, so that what is kept of the text is one step.
#include <fmt/format.h>

#include <charconv>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/schedules/names.h"
#include "runtime/schedules/schedule_file.h"

namespace flx::schedules {

using algorithms::BitClass;
using algorithms::Buffer;
using algorithms::Collective;
using algorithms::Place;
using algorithms::Schedule;
using algorithms::Step;
using algorithms::StepKind;
using algorithms::Written;
using Json = nlohmann::json;

namespace {

/// As JSON has it, but not all of a long text.
std::string shown(const Json &value) {
    constexpr size_t kMost = 40;
    const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    return text.size() <= kMost ? text : text.substr(0, kMost) + "…";
}

template <typename Pairs>
std::string names_of(const Pairs &pairs) {
    std::string names;
    for (const auto &[value, name] : pairs)
        names.append(names.empty() ? "" : ", ").append(name);
    return names;
}

std::string names_of_collectives() {
    std::string names;
    for (const Collective collective : algorithms::kScheduled)
        names.append(names.empty() ? "" : ", ").append(algorithms::name_of(collective));
    return names;
}

/// The fields of an object, which `where` names in sentences.
class Fields {
  public:
    Fields(const Json &object, std::string where) : object_(object), where_(std::move(where)) {}

    [[nodiscard]] Status wrong(std::string_view key, std::string_view why) const {
        const auto found = object_.find(key);
        const std::string has = found == object_.end() ? "is not there" : "is " + shown(*found);
        return fail(Fault::schedule_file, "{}: \"{}\" {}; {}", where_, key, has, why);
    }
    [[nodiscard]] bool has(std::string_view key) const { return object_.contains(key); }
    [[nodiscard]] const Json &at(std::string_view key) const { return object_.at(std::string(key)); }

    Status only(std::initializer_list<std::string_view> known) const {
        for (const auto &[key, value] : object_.items()) {
            if (std::ranges::find(known, key) != known.end())
                continue;
            std::string names;
            for (const std::string_view name : known)
                names.append(names.empty() ? "" : ", ").append(name);
            return fail(Fault::schedule_file, "{}: \"{}\" is not known; there may be {}", where_, key, names);
        }
        return {};
    }
    template <typename Number>
    Status number(std::string_view key, uint64_t least, uint64_t most, Number &result) const {
        const auto found = object_.find(key);
        if (found == object_.end() || !found->is_number_unsigned() || found->get<uint64_t>() < least ||
            found->get<uint64_t>() > most)
            return wrong(key, fmt::format("it must be a number from {} to {}", least, most));
        result = static_cast<Number>(found->get<uint64_t>());
        return {};
    }
    Status text(std::string_view key, std::string &result) const {
        const auto found = object_.find(key);
        if (found == object_.end() || !found->is_string())
            return wrong(key, "it must be a text");
        result = found->get<std::string>();
        return {};
    }
    /// Where it is left out, `result` stays.
    Status optional_text(std::string_view key, std::string &result) const {
        return has(key) ? text(key, result) : Status();
    }
    Status flag(std::string_view key, bool &result) const {
        if (!has(key))
            return {};
        if (!at(key).is_boolean())
            return wrong(key, "it must be true or false");
        result = at(key).get<bool>();
        return {};
    }
    /// Of numbers from 0 to `most`; where it is left out, there are none.
    Status numbers(std::string_view key, uint64_t most, std::vector<int32_t> &result) const {
        result.clear();
        if (!has(key))
            return {};
        const std::string why = fmt::format("it must be a list of numbers from 0 to {}", most);
        if (!at(key).is_array())
            return wrong(key, why);
        for (const Json &one : at(key)) {
            if (!one.is_number_unsigned() || one.get<uint64_t>() > most)
                return wrong(key, why);
            result.push_back(one.get<int32_t>());
        }
        return {};
    }
    template <typename Pairs, typename Value>
    Status name(std::string_view key, const Pairs &pairs, Value &result) const {
        std::string called;
        FLX_TRY(text(key, called));
        const auto found = find_name(pairs, called);
        if (!found)
            return wrong(key, "it must be one of " + names_of(pairs));
        result = *found;
        return {};
    }
    Status place(std::string_view key, Place &result) const {
        std::string text;
        constexpr std::string_view kScratch = "scratch ";
        const auto refused = [&] {
            return wrong(key, "it must be input, output or scratch N, with the number of a slot");
        };
        if (!has(key) || !at(key).is_string())
            return refused();
        text = at(key).get<std::string>();
        if (text == "input" || text == "output") {
            result = {text == "input" ? Buffer::input : Buffer::output, 0};
            return {};
        }
        if (!text.starts_with(kScratch))
            return refused();
        uint32_t slot = 0;
        const char *end = text.data() + text.size();
        const auto read = std::from_chars(text.data() + kScratch.size(), end, slot);
        if (read.ec != std::errc() || read.ptr != end || slot >= kMostSlots)
            return refused();
        result = {Buffer::scratch, static_cast<uint16_t>(slot)};
        return {};
    }

  private:
    const Json &object_;
    std::string where_;
};

/// Which of a step's fields its kind has.
Status check_fields(const Fields &fields, StepKind kind) {
    switch (kind) {
        case StepKind::send:
            return fields.only({"do", "peer", "phase", "block", "from", "after", "only_in_place"});
        case StepKind::recv:
            return fields.only({"do", "peer", "phase", "block", "to", "after", "only_in_place"});
        case StepKind::recv_reduce:
            return fields.only(
                {"do", "peer", "phase", "block", "from", "to", "received_first", "finish", "after", "only_in_place"});
        case StepKind::gather_reduce:
            return fields.only({"do", "group", "phase", "block", "from", "to", "finish", "after", "only_in_place"});
        case StepKind::copy:
            return fields.only({"do", "phase", "block", "from", "to", "after", "only_in_place"});
    }
    return {};
}

/// `before`: steps of the rank that stand before it.
Status read_dependencies(const Fields &fields, size_t before, Step &step) {
    std::vector<int32_t> after;
    std::vector<int32_t> in_place;
    if (before == 0 && (fields.has("after") || fields.has("only_in_place")))
        return fields.wrong(fields.has("after") ? "after" : "only_in_place",
                            "the first step of a rank can depend on none");
    FLX_TRY(fields.numbers("after", before - 1, after));
    FLX_TRY(fields.numbers("only_in_place", before - 1, in_place));
    if (after.size() > algorithms::kMaxDependencies)
        return fields.wrong("after", fmt::format("a step depends on {} at most", algorithms::kMaxDependencies));
    for (size_t at = 0; at < after.size(); ++at)
        if (std::find(after.begin(), after.begin() + static_cast<std::ptrdiff_t>(at), after[at]) !=
            after.begin() + static_cast<std::ptrdiff_t>(at))
            return fields.wrong("after", "each step stands in it once");
    for (const int32_t step_before : in_place)
        if (std::ranges::find(after, step_before) == after.end())
            return fields.wrong("only_in_place", "each of them must be in \"after\", too");
    for (const int32_t step_before : after) {
        if (std::ranges::find(in_place, step_before) == in_place.end())
            step.depends(static_cast<uint32_t>(step_before));
        else
            step.depends_in_place(static_cast<uint32_t>(step_before));
    }
    return {};
}

Status read_step(const Json &json, const std::string &where, size_t before, Step &step) {
    if (!json.is_object())
        return fail(Fault::schedule_file, "{}: it is {}, and no step, which is an object", where, shown(json));
    const Fields fields(json, where);
    FLX_TRY(fields.name("do", kKindNames, step.kind));
    FLX_TRY(check_fields(fields, step.kind));
    const bool sends = step.kind == StepKind::send;
    const bool receives = step.kind == StepKind::recv || step.kind == StepKind::recv_reduce;
    if (sends || receives)
        FLX_TRY(fields.number("peer", 0, kMostRanks - 1, step.peer));
    if (step.kind == StepKind::gather_reduce)
        FLX_TRY(fields.number("group", 0, UINT8_MAX, step.group));
    if (fields.has("phase"))
        FLX_TRY(fields.number("phase", 0, kMostPhases - 1, step.phase));
    FLX_TRY(fields.number("block", 0, kMostBlocks - 1, step.block));
    if (step.kind != StepKind::recv)
        FLX_TRY(fields.place("from", step.from));
    if (!sends)
        FLX_TRY(fields.place("to", step.to));
    FLX_TRY(fields.flag("received_first", step.received_first));
    FLX_TRY(fields.flag("finish", step.finish));
    return read_dependencies(fields, before, step);
}

/// Takes each step out of the text as it is parsed, and has the rest as JSON.
class Parser {
  public:
    explicit Parser(std::vector<Schedule> &schedules) : schedules_(schedules) {}

    Status parse(std::string_view text, Json &rest) {
        try {
            rest = Json::parse(
                text, [this](int depth, Json::parse_event_t event, Json &value) { return see(depth, event, value); });
        } catch (const Json::exception &error) {
            const std::string_view what = error.what();  // [json.exception.…] what
            return fail(Fault::schedule_file, "this is no JSON: {}", what.substr(what.find("] ") + 2));
        }
        return std::move(status_);
    }

  private:
    // Depths of the object of a rank, of its fields, and of a step.
    static constexpr int kRank = 2;
    static constexpr int kOfRank = 3;
    static constexpr int kStep = 4;

    /// False: what was parsed is not kept.
    bool see(int depth, Json::parse_event_t event, Json &value) {
        using Event = Json::parse_event_t;
        if (event == Event::key && depth == 1)
            in_schedules_ = value == "schedules";
        if (event == Event::key && depth == kOfRank)
            in_steps_ = value == "steps";
        if (!in_schedules_)
            return true;
        if (event == Event::object_start && depth == kRank)
            schedules_.emplace_back();
        const bool ended = event == Event::object_end || event == Event::array_end || event == Event::value;
        if (!in_steps_ || depth != kStep || !ended || schedules_.empty())
            return true;
        if (status_.ok()) {
            std::vector<Step> &steps = schedules_.back().steps;
            const size_t before = steps.size();
            const std::string where = fmt::format("rank {}, step {}", schedules_.size() - 1, before);
            status_ = read_step(value, where, before, steps.emplace_back());
        }
        return false;
    }

    std::vector<Schedule> &schedules_;
    bool in_schedules_ = false;
    bool in_steps_ = false;
    Status status_;
};

/// All that a rank has beside its steps.
Status read_rank(const Json &json, int rank, const Schedule &whole, Schedule &schedule) {
    const std::string where = fmt::format("rank {}", rank);
    if (!json.is_object())
        return fail(Fault::schedule_file, "{}: its schedule is {}, and no object", where, shown(json));
    const Fields fields(json, where);
    FLX_TRY(fields.only({"rank", "scratch", "groups", "steps"}));
    FLX_TRY(fields.number("rank", static_cast<uint64_t>(rank), static_cast<uint64_t>(rank), rank));
    if (!fields.has("steps") || !fields.at("steps").is_array())
        return fields.wrong("steps", "it must be a list of steps");
    if (fields.has("scratch"))
        FLX_TRY(fields.number("scratch", 0, kMostSlots, schedule.scratch_slots));
    if (fields.has("groups")) {
        const Json &groups = fields.at("groups");
        if (!groups.is_array() || groups.size() > UINT8_MAX + 1)
            return fields.wrong("groups", "it must be a list of at most 256 lists of ranks");
        for (const Json &group : groups) {
            std::vector<int32_t> &ranks = schedule.groups.emplace_back();
            FLX_TRY(Fields(Json{{"groups", group}}, where).numbers("groups", kMostRanks - 1, ranks));
        }
    }
    schedule.blocks = whole.blocks;
    schedule.phases = whole.phases;
    schedule.input = whole.input;
    schedule.output = whole.output;
    return {};
}

Status read_head(const Json &json, Written &result, Schedule &whole, int &ranks) {
    const Fields fields(json, "the file");
    if (!json.is_object() || !fields.has("format") || fields.at("format") != kFormat)
        return fail(Fault::schedule_file, "this is no schedule: \"format\" is not \"{}\"", kFormat);
    int version = 0;
    FLX_TRY(fields.number("version", kVersion, kVersion, version));
    FLX_TRY(fields.only({"format", "version", "name", "description", "source", "collective", "ranks", "root", "hosts",
                         "order", "blocks", "phases", "schedules"}));
    FLX_TRY(fields.text("name", result.name));
    if (!is_name(result.name))
        return fields.wrong("name", "it must have 1 to 64 letters, digits, dots, dashes and underscores");
    FLX_TRY(fields.optional_text("description", result.description));
    FLX_TRY(fields.optional_text("source", result.source));
    std::string called;
    FLX_TRY(fields.text("collective", called));
    const std::optional<Collective> collective = algorithms::parse_collective(called);
    if (!collective || !algorithms::has_schedules(*collective))
        return fields.wrong("collective", "it must be one of " + names_of_collectives());
    result.collective = *collective;
    FLX_TRY(fields.number("ranks", 1, kMostRanks, ranks));
    if (algorithms::rooted(*collective))
        FLX_TRY(fields.number("root", 0, static_cast<uint64_t>(ranks) - 1, result.root));
    else if (fields.has("root"))
        return fields.wrong("root", fmt::format("{} has no root", called));
    FLX_TRY(fields.numbers("hosts", kMostRanks - 1, result.host_of));
    if (fields.has("hosts") && result.host_of.size() != static_cast<size_t>(ranks))
        return fields.wrong("hosts", fmt::format("it must have the host of each of the {} ranks", ranks));
    result.bits = BitClass::none;
    if (algorithms::reduces(*collective)) {
        result.bits = BitClass::own;
        if (fields.has("order"))
            FLX_TRY(fields.name("order", kBitsNames, result.bits));
        if (result.bits == BitClass::none || !algorithms::can_be_proved(result.bits))
            result.bits = BitClass::own;
    }
    FLX_TRY(fields.number("blocks", 1, kMostBlocks, whole.blocks));
    FLX_TRY(fields.number("phases", 1, kMostPhases, whole.phases));
    whole.input = algorithms::input_layout(*collective);
    whole.output = algorithms::output_layout(*collective);
    return {};
}

}  // namespace

Status read_json(std::string_view text, Written &result) {
    result = {};
    Json rest;
    FLX_TRY(Parser(result.schedules).parse(text, rest));
    Schedule whole;
    int ranks = 0;
    FLX_TRY(read_head(rest, result, whole, ranks));
    const Fields fields(rest, "the file");
    if (!fields.has("schedules") || !fields.at("schedules").is_array())
        return fields.wrong("schedules", "it must be a list with the schedule of each rank");
    const Json &schedules = fields.at("schedules");
    if (result.schedules.size() > schedules.size())
        return fail(Fault::schedule_file, "\"schedules\" stands there twice");
    if (schedules.size() != static_cast<size_t>(ranks))
        return fail(Fault::schedule_file, "there are schedules of {} ranks, and \"ranks\" is {}", schedules.size(),
                    ranks);
    result.schedules.resize(schedules.size());
    for (int rank = 0; rank < ranks; ++rank)
        FLX_TRY(
            read_rank(schedules[static_cast<size_t>(rank)], rank, whole, result.schedules[static_cast<size_t>(rank)]));
    return {};
}

}  // namespace flx::schedules

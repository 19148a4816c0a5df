/// \file json_writer.cpp
/// Schedules to JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "runtime/schedules/names.h"
#include "runtime/schedules/schedule_file.h"

namespace flx::schedules {

using algorithms::Buffer;
using algorithms::Schedule;
using algorithms::Step;
using algorithms::StepKind;
using algorithms::Written;
using Ordered = nlohmann::ordered_json;

namespace {

/// Each once: one that always holds and also in place always holds.
void add_dependencies(const Step &step, Ordered &json) {
    std::vector<uint32_t> after;
    std::vector<uint32_t> always;
    for (uint8_t d = 0; d < step.dependencies; ++d) {
        if (std::ranges::find(after, step.after[d]) == after.end())
            after.push_back(step.after[d]);
        if (step.holds(d, false))
            always.push_back(step.after[d]);
    }
    if (!after.empty())
        json["after"] = after;
    std::erase_if(after, [&](uint32_t one) { return std::ranges::find(always, one) != always.end(); });
    if (!after.empty())
        json["only_in_place"] = after;
}

Ordered step_json(const Step &step, int phases) {
    Ordered json;
    json["do"] = name_of(step.kind);
    if (step.peer >= 0)
        json["peer"] = step.peer;
    if (step.kind == StepKind::gather_reduce)
        json["group"] = step.group;
    if (phases > 1)
        json["phase"] = step.phase;
    json["block"] = step.block;
    if (step.from.buffer != Buffer::none)
        json["from"] = place_text(step.from);
    if (step.to.buffer != Buffer::none)
        json["to"] = place_text(step.to);
    if (step.kind == StepKind::recv_reduce && !step.received_first)
        json["received_first"] = false;
    if (step.finish)
        json["finish"] = true;
    add_dependencies(step, json);
    return json;
}

}  // namespace

std::string to_json(const Written &written) {
    const Schedule &first = written.schedules.front();
    Ordered head;
    head["format"] = kFormat;
    head["version"] = kVersion;
    head["name"] = written.name;
    if (!written.description.empty())
        head["description"] = written.description;
    if (!written.source.empty())
        head["source"] = written.source;
    head["collective"] = algorithms::name_of(written.collective);
    head["ranks"] = written.size();
    if (algorithms::rooted(written.collective))
        head["root"] = written.root;
    if (!written.host_of.empty())
        head["hosts"] = written.host_of;
    if (algorithms::reduces(written.collective))
        head["order"] = name_of(algorithms::can_be_proved(written.bits) ? written.bits : algorithms::BitClass::own);
    head["blocks"] = first.blocks;
    head["phases"] = first.phases;

    std::string text = "{\n";
    for (const auto &[key, value] : head.items())
        text += fmt::format("  {}: {},\n", Ordered(key).dump(), value.dump());
    text += "  \"schedules\": [\n";
    for (int rank = 0; rank < written.size(); ++rank) {
        const Schedule &schedule = written.schedules[static_cast<size_t>(rank)];
        text += fmt::format("    {{\"rank\": {}, ", rank);
        if (schedule.scratch_slots != 0)
            text += fmt::format("\"scratch\": {}, ", schedule.scratch_slots);
        if (!schedule.groups.empty())
            text += fmt::format("\"groups\": {}, ", Ordered(schedule.groups).dump());
        text += "\"steps\": [";
        for (size_t step = 0; step < schedule.steps.size(); ++step)
            text.append(step == 0 ? "\n      " : ",\n      ")
                .append(step_json(schedule.steps[step], first.phases).dump());
        text += rank + 1 == written.size() ? "]}\n" : "]},\n";
    }
    text += "  ]\n}\n";
    return text;
}

}  // namespace flx::schedules

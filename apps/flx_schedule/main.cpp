/// Exports schedules, draws them, and says whether they are right.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "algorithms/written.h"
#include "apps/common/text_file.h"
#include "apps/flx_schedule/drawing.h"
#include "apps/flx_schedule/goal.h"
#include "apps/flx_schedule/messages.h"
#include "apps/flx_schedule/options.h"
#include "runtime/schedules/schedule_file.h"

namespace {

using flx::algorithms::Collective;
using flx::algorithms::Placement;
using flx::algorithms::Written;
using flx::schedule::Message;
using flx::schedule::Options;

int refuse(const std::string &sentence) {
    fmt::print(stderr, "flx_schedule: {}\n", sentence);
    return 1;
}

bool read(const std::string &path, std::string &text) {
    std::error_code ignored;
    std::ifstream file(path, std::ios::binary);
    if (!file.is_open() || std::filesystem::is_directory(path, ignored))
        return false;
    text.assign(std::istreambuf_iterator<char>(file), {});
    return true;
}

/// Where it is to be one of the names, which are listed.
template <typename Range>
std::string one_of(const Range &names) {
    return fmt::format("there are {}", fmt::join(names, ", "));
}

/// What the algorithm's function makes. A sentence: why there is nothing.
std::string build(const Options &options, Written &written) {
    std::vector<std::string_view> names;
    const auto collective = flx::algorithms::parse_collective(options.collective);
    if (!collective || !flx::algorithms::has_schedules(*collective)) {
        for (const Collective one : flx::algorithms::kScheduled)
            names.push_back(flx::algorithms::name_of(one));
        return fmt::format("\"{}\" is no collective with schedules; {}", options.collective, one_of(names));
    }
    std::vector<int> host_of;
    for (size_t host = 0; host < options.ranks_of.size(); ++host)
        host_of.insert(host_of.end(), static_cast<size_t>(options.ranks_of[host]), static_cast<int>(host));
    const auto ranks = static_cast<int>(host_of.size());
    if (options.root < 0 || options.root >= ranks)
        return fmt::format("--root is {}; ranks are 0 to {}", options.root, ranks - 1);
    const flx::algorithms::Algorithm *algorithm = flx::algorithms::find(options.algorithm);
    if (algorithm == nullptr || !algorithm->serves(*collective, ranks)) {
        for (const flx::algorithms::Algorithm &one : flx::algorithms::all())
            if (one.serves(*collective, ranks))
                names.push_back(one.name);
        return fmt::format("{} of {} ranks is not served by \"{}\"; {}", options.collective, ranks, options.algorithm,
                           one_of(names));
    }
    const Placement placement = Placement::of(host_of);
    written = written_of(*algorithm, *collective, ranks, options.root, options.hosts ? &placement : nullptr);
    return {};
}

std::string load(const Options &options, Written &written) {
    std::string text;
    if (!read(options.import_file, text))
        return fmt::format("{}: this file cannot be read", options.import_file);
    const std::string name = std::filesystem::path(options.import_file).stem().string();
    const flx::Status status = flx::schedules::read_schedule(text, name, written);
    return status.ok() ? std::string() : fmt::format("{}: {}", options.import_file, status.words());
}

/// How often the vector leaves the rank that sends most.
double most_sent(const Written &written, const std::vector<Message> &messages) {
    std::vector<size_t> sent(static_cast<size_t>(written.size()));
    for (const Message &message : messages)
        ++sent[static_cast<size_t>(message.sender)];
    return static_cast<double>(*std::ranges::max_element(sent)) / written.schedules[0].blocks;
}

std::string describe(const Written &written, const std::vector<Message> &messages) {
    size_t steps = 0;
    for (const flx::algorithms::Schedule &schedule : written.schedules)
        steps = std::max(steps, schedule.steps.size());
    const auto count = [](size_t number, const char *of) {
        return fmt::format("{} {}{}", number, of, number == 1 ? "" : "s");
    };
    return fmt::format("{} of {} by {}: {}, {}, at most {} of a rank, {}; a rank sends {:.2f} of the vector at most",
                       flx::algorithms::name_of(written.collective), count(static_cast<size_t>(written.size()), "rank"),
                       written.name, count(written.schedules[0].blocks, "block"),
                       count(written.schedules[0].phases, "phase"), count(steps, "step"),
                       count(static_cast<size_t>(flx::schedule::hops(messages)), "hop"), most_sent(written, messages));
}

/// All that is to be written; a sentence: what could not be.
std::string export_all(const Options &options, const Written &written, const std::vector<Message> &messages) {
    const auto cannot = [](const std::string &path) {
        return fmt::format("{}: this file cannot be written: {}", path, std::strerror(errno));
    };
    if (!options.json.empty() && !flx::apps::write_text(options.json, flx::schedules::to_json(written)))
        return cannot(options.json);
    if (!options.goal.empty()) {
        std::string problem;
        const std::string text = flx::schedule::to_goal(written,
                                                        {.elements = options.bytes / options.element,
                                                         .element = options.element,
                                                         .cell = options.cell,
                                                         .in_place = options.in_place},
                                                        problem);
        if (!problem.empty())
            return problem;
        if (!flx::apps::write_text(options.goal, text))
            return cannot(options.goal);
    }
    if (!options.svg.empty() && !flx::apps::write_text(options.svg, flx::schedule::to_svg(written, messages)))
        return cannot(options.svg);
    return {};
}

}  // namespace

int main(int argc, char **argv) {
    Options options;
    int code = 0;
    if (!flx::schedule::parse(argc, argv, options, code))
        return code;
    Written written;
    const bool imported = !options.import_file.empty();
    if (const std::string problem = imported ? load(options, written) : build(options, written); !problem.empty())
        return refuse(problem);
    if (!options.name.empty() && !flx::schedules::is_name(options.name))
        return refuse(fmt::format(
            "--name is \"{}\"; it must have 1 to 64 letters, digits, dots, dashes and underscores", options.name));
    if (!options.name.empty())
        written.name = options.name;
    if (const std::string wrong = flx::algorithms::prove(written); !wrong.empty())
        return refuse(fmt::format("{}: {}", imported ? options.import_file : written.name, wrong));
    const std::vector<Message> messages = flx::schedule::messages_of(written);
    const bool to_output = options.json == "-" || options.goal == "-" || options.svg == "-";
    fmt::print(to_output ? stderr : stdout, "{}\n{}\n", describe(written, messages),
               "right: each element of each output is what it should be, in place and not, and what is sent again is "
               "what it was");
    if (const std::string problem = export_all(options, written, messages); !problem.empty())
        return refuse(problem);
    return 0;
}

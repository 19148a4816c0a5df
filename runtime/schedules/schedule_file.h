/// \file schedule_file.h
/// Schedules as files: FLX's own JSON (docs/schedules.md) and MSCCL's XML. Text to data and back; whether a schedule is
/// right is for algorithms::prove to say. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "algorithms/written.h"
#include "runtime/base/status.h"

namespace flx::schedules {

/// Of the JSON; a reader refuses others.
inline constexpr int kVersion = 1;
inline constexpr std::string_view kFormat = "flx-schedule";
/// The most that a file may ask for. More blocks or ranks than that no program has had a use for.
inline constexpr int kMostRanks = 4096;
inline constexpr uint32_t kMostBlocks = 65536;
inline constexpr int kMostPhases = 255;
inline constexpr uint32_t kMostSlots = 65535;

/// Reads either form: XML begins with `<`. `name`: what the schedule is called where it does not say so itself.
/// Fault::schedule_file names the element that is wrong, by rank and step, or by line and column where the text is no
/// JSON or XML.
Status read_schedule(std::string_view text, const std::string &name, algorithms::Written &result);

/// The same of each form alone.
Status read_json(std::string_view text, algorithms::Written &result);
Status read_msccl(std::string_view text, const std::string &name, algorithms::Written &result);

/// The JSON, a step a line. What read_json makes of it is equal, but for a class of bits that nobody can prove: it is
/// written as `own`.
std::string to_json(const algorithms::Written &written);

/// Whether a schedule may be called so: it stands in rules, between colons, commas and brackets.
bool is_name(std::string_view name);

/// A hash of a file's text, by which ranks compare files; beyond the numbers of algorithms in the registry.
uint64_t hash_of(std::string_view text);

/// `input`, `output`, `scratch 3`, as the JSON has places.
std::string place_text(const algorithms::Place &place);
/// As the JSON has the kinds of steps: `send`, `recv`, `recv_reduce`, `gather_reduce`, `copy`.
std::string_view name_of(algorithms::StepKind kind);
/// As the JSON has classes of bits: `rank_order`, …
std::string_view name_of(algorithms::BitClass bits);

}  // namespace flx::schedules

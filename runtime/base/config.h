/// \file config.h
/// The one registry of knobs: name, type, default, range, one line of documentation. A knob's value comes from its
/// default, the environment, or flx_config_t, and remembers which.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace flx {

enum class KnobType : uint8_t { integer, real, size, text, choice };

/// Whom a knob is for: who runs programs, or who investigates FLX.
enum class KnobTier : uint8_t { user, expert };
/// On which ranks a knob must have the same value.
enum class KnobScope : uint8_t {
    rank,          ///< each may have its own
    communicator,  ///< all of a communicator
    program,       ///< likewise, and nothing that is measured depends on it
    gpus           ///< all of a communicator whose GPUs are used
};

/// One knob. `size` values accept K, M, G suffixes (powers of 1024).
struct Knob {
    std::string_view name;  ///< `FLX_DEADLINE`
    KnobType type;
    std::string_view fallback;  ///< default, as text
    double low;                 ///< integer, real, size: least value allowed
    double high;                ///< and greatest
    std::string_view choices;   ///< choice: `a|b|c`
    std::string_view unit;      ///< integer, real: `seconds`; empty: none
    std::string_view doc;       ///< one line
    KnobTier tier = KnobTier::expert;
    KnobScope scope = KnobScope::rank;
};

/// The origin of what a program sets for one communicator.
constexpr std::string_view kOwnConfig = "flx_config_t";

/// All knobs there are.
std::span<const Knob> knobs();
/// `a number of seconds from 0.1 to 86400`, for sentences.
std::string what_is_allowed(const Knob &knob);

/// The values in force for one process or communicator. Lookups search by name and parse: they are for when
/// communicators are made, not for the path of an operation. Not synchronised; const calls may run at once.
class Config {
  public:
    /// Every knob at its default.
    Config();
    /// Reads the environment. An unknown name that begins with FLX_, or a value that is not allowed, is
    /// FLX_ERR_CONFIG with a sentence that says what is allowed (and the nearest known name), and leaves `config` as it
    /// was. Names that begin with FLX_TEST_ belong to the project's test programs and are passed over.
    static Status from_environment(Config &config);
    /// The same for reports: takes what is right, and adds to `wrong` what is not.
    static void from_environment(Config &config, std::vector<Status> &wrong);
    /// Overrides one knob (origin: `flx_config_t`). FLX_ERR_CONFIG as above.
    Status set(std::string_view name, std::string_view value, std::string_view origin);

    /// `name` must be a knob of that type (text: or choice).
    [[nodiscard]] int64_t integer(std::string_view name) const;
    [[nodiscard]] double real(std::string_view name) const;
    [[nodiscard]] size_t size(std::string_view name) const;
    [[nodiscard]] const std::string &text(std::string_view name) const;
    /// The knob's value as it was given, whatever its type: for reports.
    [[nodiscard]] const std::string &value(std::string_view name) const;
    /// `NAME=VALUE NAME=VALUE …` of the knobs of that scope, for ranks to compare: equal where the values are.
    [[nodiscard]] std::string values_of(KnobScope scope) const;
    /// `environment`, `default`, `flx_config_t`.
    [[nodiscard]] const std::string &origin(std::string_view name) const;

  private:
    struct Value {
        std::string text;
        std::string origin;
    };
    std::vector<Value> values_;  // one per knob, same order
};

/// `said` is what `rank` has of values_of(), `said_there` the same of rank `other`. FLX_ERR_CONFIG with those knobs
/// that differ, and no others.
Status compare_knobs(int rank, std::string_view said, int other, std::string_view said_there);

/// Parses `8`, `1K`, `64M`, `2G` (powers of 1024). Shared with the programs in apps/. FLX_ERR_ARGUMENT leaves `bytes`.
Status parse_size(std::string_view text, size_t &bytes);

}  // namespace flx

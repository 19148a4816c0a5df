/// \file log.h
/// One logger, to stderr, level by FLX_LOG (error, warn, info, debug). Each line names the rank.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <string>
#include <string_view>

namespace flx {

/// What something that learns has decided, for people to read (flx_info --why; NCCL's front: FLX_STATS). Whoever learns
/// has a function `explain`, which gives what was decided last and from what.
struct Decision {
    std::string about;    ///< `allreduce`, `blocks to host h2`
    size_t bytes = 0;     ///< about so long; 0: of any length
    std::string decided;  ///< `rail1 0.57, rail2 0.43`
    std::string from;     ///< the measurements
};

enum class LogLevel { debug, info, warn, error };

/// Lines such as `flx warning rank 3: …`. Thread-safe. Files that log see no more of the library behind it than this:
/// its templates would be compiled again in each of them.
class Log {
  public:
    template <typename... Args>
    void write(LogLevel level, fmt::format_string<Args...> format, Args &&...args) const {
        write_line(level, format, fmt::make_format_args(args...));
    }
    template <typename... Args>
    void debug(fmt::format_string<Args...> format, Args &&...args) const {
        write_line(LogLevel::debug, format, fmt::make_format_args(args...));
    }
    template <typename... Args>
    void info(fmt::format_string<Args...> format, Args &&...args) const {
        write_line(LogLevel::info, format, fmt::make_format_args(args...));
    }
    template <typename... Args>
    void warn(fmt::format_string<Args...> format, Args &&...args) const {
        write_line(LogLevel::warn, format, fmt::make_format_args(args...));
    }
    template <typename... Args>
    void error(fmt::format_string<Args...> format, Args &&...args) const {
        write_line(LogLevel::error, format, fmt::make_format_args(args...));
    }
    /// Whether lines of that level are shown: to be asked before a costly one is composed.
    [[nodiscard]] bool shows(LogLevel level) const;

  private:
    void write_line(LogLevel level, fmt::string_view format, fmt::format_args args) const;
};

/// The process's logger. It works until the process ends, so that destructors of static objects may log.
inline Log log() {
    return {};
}
/// Sets the level, a value of FLX_LOG. Thread-safe.
void set_log_level(std::string_view level);
/// Lines name this rank from now on. The first call counts: it is the process's rank in the first communicator, which
/// is mostly the world, and not in each that is split from it. Thread-safe.
void name_log(int rank);

}  // namespace flx

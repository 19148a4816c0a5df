#include "runtime/base/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <mutex>
#include <string>

namespace flx {

namespace {

/// FLX's own: spdlog's global registry stays the program's.
spdlog::logger &logger() {
    static spdlog::logger *const only = [] {
        auto *made = new spdlog::logger("flx", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
        made->set_level(spdlog::level::warn);
        made->flush_on(spdlog::level::trace);
        made->set_pattern("%n %^%l%$: %v");
        return made;
    }();
    return *only;
}

spdlog::level::level_enum level_of(LogLevel level) {
    switch (level) {
        case LogLevel::debug:
            return spdlog::level::debug;
        case LogLevel::info:
            return spdlog::level::info;
        case LogLevel::warn:
            return spdlog::level::warn;
        case LogLevel::error:
            break;
    }
    return spdlog::level::err;
}

}  // namespace

bool Log::shows(LogLevel level) const {
    return logger().should_log(level_of(level));
}

void Log::write_line(LogLevel level, fmt::string_view format, fmt::format_args args) const {
    if (shows(level))
        logger().log(level_of(level), fmt::vformat(format, args));
}

void set_log_level(std::string_view level) {
    logger().set_level(spdlog::level::from_str(std::string(level)));
}

void name_log(int rank) {
    static std::once_flag named;
    std::call_once(named, [rank] { logger().set_pattern(fmt::format("%n %^%l%$ rank {}: %v", rank)); });
}

}  // namespace flx

#include "log.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <memory>
#include <string>

namespace flx {

spdlog::logger &log() {
    static spdlog::logger *const logger = [] {
        auto *made = new spdlog::logger("flx", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
        made->set_level(spdlog::level::warn);
        made->flush_on(spdlog::level::trace);
        made->set_pattern("%n %^%l%$: %v");
        return made;
    }();
    return *logger;
}

void configure_log(std::string_view level, int rank) {
    log().set_level(spdlog::level::from_str(std::string(level)));
    log().set_pattern(fmt::format("%n %^%l%$ rank {}: %v", rank));
}

}  // namespace flx

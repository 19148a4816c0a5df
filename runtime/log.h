/// \file log.h
/// One logger, to stderr, level by FLX_LOG (error, warn, info, debug). Each line names the rank.
#pragma once

#include <spdlog/spdlog.h>

namespace flx {

/// The process's logger: lines such as `flx warning rank 3: …`. Thread-safe. Lives until the process ends, so that
/// destructors of static objects may log. It is FLX's own: spdlog's global registry stays the program's.
spdlog::logger &log();
/// Sets level (a value of FLX_LOG) and the rank shown. Called when the first communicator is made. Thread-safe.
void configure_log(std::string_view level, int rank);

}  // namespace flx

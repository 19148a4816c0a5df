#include "ucx_glue/quiet.h"

#include <ucs/debug/log_def.h>

#include <cstdarg>
#include <cstdio>
#include <mutex>

#include "runtime/base/log.h"

namespace flx::ucx {
namespace {

ucs_log_func_rc_t take_line(const char * /*file*/, unsigned /*line*/, const char * /*function*/, ucs_log_level_t level,
                            const ucs_log_component_config_t * /*component*/, const char *format, va_list arguments) {
    if (!Quiet::active() || level == UCS_LOG_LEVEL_FATAL)
        return UCS_LOG_FUNC_RC_CONTINUE;
    if (log().shows(LogLevel::debug)) {
        char text[512];
        va_list copy;
        va_copy(copy, arguments);
        std::vsnprintf(text, sizeof text, format, copy);
        va_end(copy);
        log().debug("UCX: {}", text);
    }
    return UCS_LOG_FUNC_RC_STOP;
}

}  // namespace

void install_quiet() {
    static std::once_flag once;
    std::call_once(once, [] { ucs_log_push_handler(take_line); });
}

}  // namespace flx::ucx

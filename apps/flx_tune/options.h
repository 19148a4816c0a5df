/// \file options.h
/// The command line of flx_tune. Prints nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/bench/command_line.h"

namespace flx::tune {

struct Options {
    std::vector<std::string> collectives;  ///< of calls.h, not empty
    uint64_t largest = 4 << 20;            ///< bytes of the largest calls, over all ranks; at least 4
    double seconds = 30;                   ///< how long it goes on, at most by one round more
};

[[nodiscard]] bench::Parsed<Options> parse(int argc, char **argv);

}  // namespace flx::tune

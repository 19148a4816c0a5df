/// \file loaded.h
/// The schedules that a process has loaded from files. They stay until it ends, as communicators keep pointers to them;
/// a file that says the same as one before is not kept twice. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "algorithms/written.h"
#include "runtime/base/status.h"

namespace flx::schedules {

struct Loaded {
    std::string key;     ///< `ring8#` and a hash of the file's text, by which ranks compare it
    std::string called;  ///< `file:ring8`, the algorithm's name
    algorithms::Written written;
    algorithms::Algorithm algorithm;  ///< that has these schedules
    bool proved = false;              ///< they were executed symbolically
};

/// Loads a file; where there is none, `path` may be the name of schedules that were loaded, by which programs that ask
/// which algorithms there are name them again. `prove`: and executes what it says symbolically, unless that was done.
/// Fault::schedule_file names the file, and what is wrong with it: the first element, by rank and step.
Status load(const std::string &path, bool prove, const Loaded *&result);

/// What has that key; null: nothing that was loaded.
const Loaded *find_loaded(std::string_view key);

}  // namespace flx::schedules

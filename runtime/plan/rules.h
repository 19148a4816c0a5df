/// \file rules.h
/// What a user says of algorithms: FLX_ALGORITHM, or a file of rules. Texts to data; whether a name serves a collective
/// on a communicator is the planner's to say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "algorithms/schedule.h"
#include "runtime/base/status.h"

namespace flx {

/// `allreduce:ring@64K-1M`: from 64 KiB to less than 1 MiB of the whole vector. Without sizes: for all.
/// `allreduce:file:ring8.json`: the schedules of that file (runtime/schedules/loaded.h).
struct Rule {
    std::string entry;  ///< as written
    algorithms::Collective collective = algorithms::Collective::allreduce;
    std::string name;  ///< of an algorithm, or of a way through shared memory; `file:` and the key of schedules
    size_t from = 0;
    size_t end = SIZE_MAX;  ///< the first size beyond

    [[nodiscard]] bool covers(algorithms::Collective called, size_t bytes) const {
        return called == collective && from <= bytes && bytes < end;
    }
};

/// Entries separated by commas; empty text has none. FLX_ERR_CONFIG with what is allowed.
Status parse_rules(const std::string &text, std::vector<Rule> &rules);

/// Puts in the place of each `file:PATH` the rules of that file: one in a line, `#` begins a comment; and in that of
/// each `collective:file:PATH` the key of the schedules in that file, which are loaded. FLX_ERR_CONFIG names file and
/// line, or the element of a schedule. So ranks compare what files say, not what they are called. `prove`: also execute
/// schedules symbolically, which one rank does for all.
Status read_rule_files(const std::string &text, std::string &rules, bool prove = true);

}  // namespace flx

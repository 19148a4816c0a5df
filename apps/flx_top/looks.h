/// \file looks.h
/// What one look at the processes of a host found, as a line of JSON for flx_top on another host.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/record/reader.h"

namespace flx::top {

/// Without a line's end. Bytes of a command line that are no UTF-8 are replaced.
std::string line_of(const std::vector<record::ProcessSeen> &processes);

/// FLX_ERR_SYSTEM: `line` is no such line, or one of another version's flx_top.
Status read_line(const std::string &line, std::vector<record::ProcessSeen> &processes);

}  // namespace flx::top

/// \file info.h
/// What flx_info prints.
#pragma once

#include <string>
#include <vector>

#include "communicator.h"
#include "status.h"

namespace flx {

/// Lines in sections that begin with `[machine]`, `[links]`, `[algorithms]`, `[knobs]`. `comm` may be null.
Status report(const Communicator *comm, std::vector<std::string> &lines);

}  // namespace flx

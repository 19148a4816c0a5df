/// \file report.h
/// What flx_info prints.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/communicator/communicator.h"

namespace flx {

/// Lines in sections that begin with `[machine]`, `[links]`, `[costs]`, `[shared memory]`, `[gpus]`, `[algorithms]`,
/// `[knobs]`. `comm` may be null. With an error, which the lines name too, they hold what there is all the same.
Status report(const Communicator *comm, std::vector<std::string> &lines);

}  // namespace flx

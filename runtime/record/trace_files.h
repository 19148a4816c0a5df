/// \file trace_files.h
/// Where the parts of a trace are, FILE.parts, who may write there, and when FILE is made of them.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/record/process_files.h"
#include "runtime/record/trace_json.h"

namespace flx::record {

/// Makes the part of a process, and the folder for it, which must be the user's own: `fd` is open for reading and
/// writing, and the caller's. The part that an earlier process of that rank and host left goes. FLX_ERR_SYSTEM.
Status make_part(const std::string &file, int rank, std::string_view host, const ProcessId &process, std::string &path,
                 int &fd);

/// It could not be written to: it goes, and the folder if nothing else is there.
void drop_part(const std::string &file, const std::string &path);

/// Writes `file` of the parts that are there, of the program that began last, whether or not its processes have ended.
/// The parts go, but where one of the processes may still run. FLX_ERR_SYSTEM: there is none, it cannot be written, or
/// another process is at it.
Status make_trace(const std::string &file, TraceMade &made);

/// The same for the program `job` where all its `size` ranks have ended; else nothing, as the one that ends last does
/// it. Parts of programs that have ended go, too.
Status finish_trace(const std::string &file, const std::string &job, int size);

}  // namespace flx::record

/// \file trace_json.h
/// Makes a trace of the parts that processes wrote (trace_format.h): JSON as chrome://tracing and Perfetto read it,
/// with a row for each communicator and each link of a rank, and the clocks of the hosts set by what was measured.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace flx::record {

/// Makes the part of a process, and the folder for it: `fd` is open for reading and writing, and the caller's. Parts
/// that earlier programs left of the same trace on this host go. FLX_ERR_SYSTEM.
Status make_part(const std::string &file, int rank, std::string_view host, int pid, std::string &path, int &fd);

/// What a trace was made of.
struct TraceMade {
    size_t ranks = 0;
    uint64_t calls = 0;
    uint64_t lost = 0;               ///< calls that are not in it
    std::vector<std::string> notes;  ///< sentences on what is not as it should be
};

/// Writes `file` of the parts that are there, of the program that began last, whether or not their processes ended as
/// programs do, and removes them. FLX_ERR_SYSTEM: there is none, or it cannot be written; the parts stay then.
Status make_trace(const std::string &file, TraceMade &made);

/// The same where all `size` ranks of the program have ended; else nothing, as the one that ends last does it.
Status finish_trace(const std::string &file, int size);

}  // namespace flx::record

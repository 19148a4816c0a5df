/// \file options.h
/// flx_perf's command line.
#pragma once

#include <cstdint>
#include <string>

#include "apps/bench/call_options.h"
#include "apps/bench/command_line.h"

namespace flx::bench::perf {

struct Options : CallOptions {
    bool device = false;     ///< buffers in GPU memory
    bool shared = false;     ///< buffers of flx_malloc
    bool registered = true;  ///< device: outputs are registered
    bool graph = false;      ///< device: calls are captured into graphs, on both sides
    bool against_mpi = false;
    bool against_nccl = false;
    int blocks = 0;               ///< that each side runs in turn; 0: as many as fit, 7 to 31
    int64_t iterations = 0;       ///< timed calls of each side at least; 0: as many as fit into `max_seconds`
    double max_seconds = 1.0;     ///< for the timed calls of one size
    double seconds = 0.0;         ///< above 0: back to back for so long instead of in interleaved blocks
    double compute_ms = 0.0;      ///< that each rank computes before each call, outside the time
    bool beside_memcpy = false;   ///< one of the size on each rank at once, in turn with the rest
    bool all_algorithms = false;  ///< each that could serve, beside each other
    bool check_every = false;
    bool check_peer = false;
    std::string csv_file;
    std::string log_file;
    std::string page_file;
};

using Parsed = bench::Parsed<Options>;

/// Pure: prints nothing. `ranks` is what `--root` is checked against.
[[nodiscard]] Parsed parse_options(int argc, const char *const *argv, int ranks);

}  // namespace flx::bench::perf

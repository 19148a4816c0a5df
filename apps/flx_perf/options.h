/// \file options.h
/// flx_perf's command line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/bench/collectives.h"

namespace flx::bench::perf {

struct Options {
    Collective collective = Collective::kAllreduce;
    std::vector<uint64_t> sizes;  ///< bytes, in the order in which they are measured
    flx_dtype_t dtype = FLX_F32;
    flx_op_t op = FLX_SUM;
    int root = 0;
    Traffic traffic;  ///< of alltoallv
    bool in_place = false;
    bool device = false;     ///< buffers in GPU memory
    bool shared = false;     ///< buffers of flx_malloc
    bool registered = true;  ///< device: outputs are registered
    bool graph = false;      ///< device: calls are captured into graphs, on both sides
    bool against_mpi = false;
    bool against_nccl = false;
    int blocks = 0;  ///< that each side runs in turn; 0: as many as fit, 7 to 31
    int warmup = 5;
    int64_t iterations = 0;       ///< timed calls of each side at least; 0: as many as fit into `max_seconds`
    double max_seconds = 1.0;     ///< for the timed calls of one size
    double arrivals = 0.0;        ///< above 0: `iterations` messages, so many a second, instead of a collective
    uint64_t seed = 1;            ///< of arrivals
    bool overlap = false;         ///< beside a computation, without waiting
    double seconds = 0.0;         ///< above 0: back to back for so long instead of in interleaved blocks
    bool beside_product = false;  ///< device: while matrix products run on another stream
    int queued_copies = 0;        ///< device: while so many copies each way between host and GPUs begin and end
    bool beside_memcpy = false;   ///< one of the size on each rank at once, in turn with the rest
    bool all_algorithms = false;  ///< each that could serve, beside each other
    bool check_every = false;
    bool check_peer = false;
    std::string json_file;
    std::string csv_file;
    std::string log_file;
};

/// What a command line came to: options to run with, or a text to show (help: to stdout, else to stderr) and the exit
/// code that goes with it.
struct Parsed {
    std::optional<Options> options;
    std::string text;
    int exit_code = 0;
};

/// Pure: prints nothing. `ranks` is what `--root` is checked against.
[[nodiscard]] Parsed parse_options(int argc, const char *const *argv, int ranks);

/// A list `8,1K,64M` or ranges `8:64M` (times 2) and `8:64M:4` (times 4); K, M, G are powers of 1024, and a following
/// `B` or `iB` is allowed. On an error it returns a sentence in `problem`, and an empty list.
[[nodiscard]] std::vector<uint64_t> parse_sizes(std::string_view text, std::string &problem);

/// `8 B`, `1 KiB`, `64 MiB`; numbers that are not whole units stay in bytes.
[[nodiscard]] std::string size_text(uint64_t bytes);

}  // namespace flx::bench::perf

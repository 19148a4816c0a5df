/// \file options.h
/// flx_lab's command line.
#pragma once

#include <cstdint>

#include "apps/bench/call_options.h"
#include "apps/bench/command_line.h"

namespace flx::bench::lab {

/// Of `arrivals`, `overlap`, `beside_product` and `queued_copies` one says what is measured.
struct Options : CallOptions {
    double arrivals = 0.0;        ///< above 0: `iterations` messages, so many a second, instead of a collective
    uint64_t seed = 1;            ///< of arrivals
    bool overlap = false;         ///< beside a computation, without waiting
    bool beside_product = false;  ///< on GPUs: while matrix products run on another stream
    int queued_copies = 0;        ///< on GPUs: while so many copies each way between host and GPUs begin and end
    int64_t iterations = 0;       ///< messages of arrivals, rounds of overlap
    bool against_nccl = false;    ///< of beside_product

    [[nodiscard]] bool device() const { return beside_product || queued_copies > 0; }
};

using Parsed = bench::Parsed<Options>;

/// Pure: prints nothing. `ranks` is what `--root` is checked against.
[[nodiscard]] Parsed parse_options(int argc, const char *const *argv, int ranks);

}  // namespace flx::bench::lab

/// \file report.h
/// What was measured, as a table for people and as JSON and CSV for programs. Pure: texts from data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/bench/machine.h"
#include "apps/bench/timing.h"
#include "apps/flx_perf/options.h"

namespace flx::bench::perf {

/// Per link, in the order of `Results::links`.
using Shares = std::vector<double>;

/// MPI beside FLX, at one size.
struct PeerResult {
    Summary us;
    Summary ratio;                 ///< MPI / FLX, block by block
    std::optional<Summary> noise;  ///< MPI / MPI again, block by block; not measured back to back
    std::optional<uint64_t> wrong;
};

/// One size.
struct Result {
    uint64_t bytes = 0;
    std::string algorithm;
    bool chosen = true;       ///< FLX's choice, of all algorithms
    double predicted_us = 0;  ///< of all algorithms; 0: not predicted
    int64_t iterations = 0;   ///< timed calls of FLX
    int blocks = 0;           ///< that they were made in
    Summary us;               ///< a call of FLX on the slowest rank, over the blocks
    std::optional<PeerResult> peer;
    std::optional<Summary> memcpy;  ///< one of the size, on all ranks at once
    std::string why_no_peer;        ///< where a peer was asked for and cannot serve this
    double busbw_GBps = 0;
    uint64_t wrong = 0;
    Shares partition;   ///< over the timed calls
    Shares first_call;  ///< the first call of this size
    Shares last_call;   ///< and the last
};

/// One timed call of FLX.
struct LoggedCall {
    double seconds = 0;             ///< when it began, since the start of measuring
    double us = 0;                  ///< on the slowest rank
    std::optional<uint64_t> wrong;  ///< empty: not checked
    std::vector<uint64_t> bytes;    ///< that all ranks put on each link
    std::vector<double> vector;     ///< each link's part of the partition vector, on rank 0
};

struct Results {
    Options options;
    Machine machine;
    std::vector<std::string> links;
    std::vector<Result> results;
};

/// What the table shows: MPI's time over FLX's; 0 where there is no peer.
[[nodiscard]] double ratio_of(const Result &result);

/// FLX's time over memcpy's; 0 where that was not measured.
[[nodiscard]] double times_memcpy(const Result &result);

/// The lines above the table, with its column titles; they end in a newline.
[[nodiscard]] std::string header_text(const Options &options, const Machine &machine);
/// One line of the table, with its newline.
[[nodiscard]] std::string row_text(const Options &options, const std::vector<std::string> &links, const Result &result);
/// The lines below the table: how the partition vector moved, the ratios together, wrong elements.
[[nodiscard]] std::string footer_text(const Results &results);

/// Both end in a newline.
[[nodiscard]] std::string json_of(const Results &results);
[[nodiscard]] std::string csv_of(const Results &results);

/// The title line of the log of iterations and one of its lines, both with a newline.
[[nodiscard]] std::string log_header(const std::vector<std::string> &links);
[[nodiscard]] std::string log_line(int64_t iteration, const LoggedCall &call, uint64_t bytes);

}  // namespace flx::bench::perf

/// \file bench.h
/// What flx_perf measured (`--json`), and what the links of a trace could deliver at most.
#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/flx_report/data/summary.h"

namespace flx::report {

struct BenchRow {
    std::string collective;
    std::string memory;
    std::string algorithm;
    std::string peer;  ///< `none`, `mpi` or `nccl`
    double bytes = 0;
    double flx_us = 0;
    double flx_low_us = 0;  ///< a tenth of the blocks took less; 0: not measured
    double flx_high_us = 0;
    double peer_us = 0;  ///< 0: there is none
    double peer_low_us = 0;
    double peer_high_us = 0;
    double wrong = 0;                                    ///< elements of results
    double busbw_GBps = 0;                               ///< bus bandwidth of FLX, as nccl-tests define it
    std::vector<std::pair<std::string, double>> shares;  ///< of links, in what was sent; those that carried something

    [[nodiscard]] double ratio() const { return flx_us > 0 ? peer_us / flx_us : 0; }
    /// In GB/s; 0: there is no peer.
    [[nodiscard]] double peer_busbw() const { return peer_us > 0 ? busbw_GBps * flx_us / peer_us : 0; }
};

/// One file of results.
struct Bench {
    std::string name;
    std::string machine;
    std::string mpi;
    std::string mode;
    int64_t ranks = 0;
    int64_t hosts = 0;
    std::vector<BenchRow> rows;
};

/// On an error it is empty, and `problem` is a sentence with `name` and, of what is no JSON, the line.
[[nodiscard]] std::optional<Bench> read_bench(std::istream &stream, const std::string &name, std::string &problem);

/// In GB/s, the bus bandwidth that a collective could have if all rails of a host were as fast as measured, all of the
/// time, and each byte crossed between hosts as seldom as it can; the slowest host governs. 0: the links say nothing
/// about it, as for ranks of one host, or where the trace is of another number of hosts.
[[nodiscard]] double ceiling_busbw(const Summary &summary, const Bench &bench, const std::string &collective);

}  // namespace flx::report

/// \file report.h
/// What a simulation found, as a table, as JSON and as a picture.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/flx_simulate/cells.h"
#include "apps/flx_simulate/faults.h"

namespace flx::simulate {

/// As `--sizes` and FLX_ALGORITHM take it: 64K.
std::string size_text(size_t bytes);
/// The machine in a few lines.
std::string describe(const Machine &machine);
/// A line for each cell under a head; with `all`, a line for each candidate below it.
std::string table(const Machine &machine, const std::vector<Cell> &cells, bool all);
/// What calls lose by a rail that is slow or lost, or by a host that is slow, for a while, and what a job loses.
std::string fault_text(const FaultFound &found);
/// Everything, as docs/simulation.md describes it. `fault`: nothing where none was asked for.
std::string to_json(const Machine &machine, const std::vector<Cell> &cells, const std::optional<FaultFound> &fault);

/// Times of one call on machines of more and more hosts.
struct Growth {
    std::vector<int> ranks;
    std::vector<Cell> cells;  ///< as many
};
/// Has gnuplot draw it. A sentence: what is wrong; empty: nothing. Requires a cell, and a path without control
/// characters.
std::string draw(const Machine &machine, const Growth &growth, const std::string &path);

}  // namespace flx::simulate

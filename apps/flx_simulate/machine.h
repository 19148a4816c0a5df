/// \file machine.h
/// A machine that need not exist: hosts, their ranks and rails, and the network between them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "algorithms/cost/model.h"
#include "algorithms/placement.h"

namespace flx::simulate {

struct Machine {
    std::string name;
    int hosts = 2;
    int ranks = 8;  ///< of a host
    int rails = 1;
    std::vector<double> rates;    ///< bytes/ns of each rail
    double together = 0;          ///< bytes/ns that all ranks of a host copy at once at most; 0: no limit
    double crowd = 0;             ///< how much longer rails take where many ranks of a host share them at random
    double burst = 0;             ///< of all rails together, while shapers' buckets last; 0: there are none
    algorithms::CostModel costs;  ///< of ranks, and of a host's rails together
    algorithms::Fabric fabric;
    std::string network;  ///< in words
    std::string rules;    ///< FLX_ALGORITHM there, its files read
    /// It stands for a part of the ranks, or for fewer hosts: rules that serve others alone are left out.
    bool part = false;

    [[nodiscard]] int size() const { return hosts * ranks; }
    /// Ranks of a host follow each other.
    [[nodiscard]] algorithms::Placement placement() const;
};

/// Reads a machine of TOML, or of JSON with the same fields, which docs/simulation.md describes. A sentence: what is
/// wrong; empty: nothing.
std::string read_machine(const std::string &path, Machine &machine);
/// The same of a text. `path` is only named.
std::string parse_machine(std::string_view text, const std::string &path, Machine &machine);
/// A sentence where the machine has more ranks than can be reckoned; empty: it has not.
std::string too_many_ranks(const Machine &machine);

}  // namespace flx::simulate

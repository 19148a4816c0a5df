/// \file options.h
/// What flx_simulate was asked for.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace flx::simulate {

struct Options {
    std::string machine;  ///< a file
    std::vector<std::string> collectives;
    std::vector<size_t> sizes;  ///< bytes, ascending
    int hosts = 0;              ///< instead of the machine's; 0: those
    bool all = false;           ///< print every candidate
    double most_worse = 0;      ///< of a choice beside the best candidate, else the program fails; 0: any
    std::string rules;          ///< a file for rules; `-`: standard output, empty: none
    std::string json;           ///< files to write; `-`: standard output, empty: none
    std::string plot;
    std::string trace;       ///< of a program whose calls are predicted; empty: collectives and sizes
    std::string fault;       ///< as parse_fault() reads it; empty: none
    std::string fault_rate;  ///< as parse_rate() reads it; empty: none
    int calls = 1000;        ///< with a fault
};

/// False: the program ends with `code`; what is to be said was said.
bool parse(int argc, const char *const *argv, Options &options, int &code);

}  // namespace flx::simulate

/// \file options.h
/// What flx_schedule was asked for.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace flx::schedule {

struct Options {
    std::string collective;
    std::string algorithm;
    std::string import_file;    ///< instead of both
    std::vector<int> ranks_of;  ///< by host
    bool hosts = false;         ///< they were said
    int root = 0;
    size_t bytes = 0;  ///< of the whole vector
    size_t element = 4;
    size_t cell = 0;  ///< bytes; 0: whole blocks
    bool in_place = false;
    std::string name;  ///< empty: the algorithm's
    std::string json;  ///< files to write; `-`: standard output, empty: none
    std::string goal;
    std::string svg;
};

/// False: the program ends with `code`; what is to be said was said.
bool parse(int argc, const char *const *argv, Options &options, int &code);

}  // namespace flx::schedule

/// \file options.h
/// What flx_report was asked for.
#pragma once

#include <string>
#include <vector>

namespace flx::report {

struct Options {
    std::string trace;  ///< empty: there are results alone
    std::string out;    ///< the page's file; empty until parse() has named it
    std::vector<std::string> benches;
};

/// False: the program ends with `code`; what is to be said was said.
bool parse(int argc, const char *const *argv, Options &options, int &code);

}  // namespace flx::report

/// \file options.h
/// What flx_top was asked for.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace flx::top {

enum class Form : uint8_t { screen, text, json, prometheus };

struct Options {
    Form form = Form::screen;
    bool explain = false;
    uid_t user = 0;         ///< whose processes
    double interval_s = 1;  ///< between two looks
    double patience_s = 0.5;
    std::vector<std::string> hosts;                 ///< that are looked at; none: this one
    std::string reach = "ssh -o BatchMode=yes {}";  ///< the command that leads to one of them
    bool answer = false;                            ///< to an flx_top on another host
    std::string to;                                 ///< the file that is replaced; empty: standard output
};

/// False: the program ends with `code`; what is to be said was said.
bool parse(int argc, char **argv, Options &options, int &code);

}  // namespace flx::top

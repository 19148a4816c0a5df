/// \file case_name.h
/// An algorithm and a collective as part of a test's name, in which GoogleTest takes letters and digits only.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>

#include "algorithms/registry.h"

namespace flx::algorithms {

inline std::string case_name(const Algorithm &algorithm, Collective collective) {
    std::string name = std::string(algorithm.name) + "_" + std::string(name_of(collective));
    std::ranges::replace_if(
        name, [](unsigned char letter) { return std::isalnum(letter) == 0; }, '_');
    return name;
}

}  // namespace flx::algorithms

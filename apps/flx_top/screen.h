/// \file screen.h
/// The view on a terminal, as it changes.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace flx::top {

/// Shows what `lines(width, explain)` says, again and again, until the user wants no more. False: there is no terminal.
bool show(double interval_s, bool explain, const std::function<std::vector<std::string>(size_t, bool)> &lines);

}  // namespace flx::top

/// \file machine.h
/// The machine that a program runs on, as flx_simulate reads it.
#pragma once

#include <string>
#include <vector>

/// `lines`: of a report (flx_report), whose section `[costs]` has it. JSON in `text`, or a sentence that says why there
/// is none; empty: there is one.
std::string machine_of(const std::vector<std::string> &lines, std::string &text);

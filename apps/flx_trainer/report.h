/// \file report.h
/// Judges a training's outcome and shows it.
#pragma once

#include <string>
#include <vector>

#include "apps/flx_trainer/options.h"
#include "apps/flx_trainer/training.h"

namespace flx::trainer {

/// One thing that must hold, with a sentence that says whether it does.
struct Check {
    std::string name;
    bool passed;
    std::string sentence;
};

/// Accuracy, equal weights and losses of every run. Numbers that are no numbers fail.
std::vector<Check> judge(const Options &options, const Outcome &outcome);

/// The table and the checks on standard output.
void print_report(const Options &options, int ranks, const Outcome &outcome, const std::vector<Check> &checks);

/// The same as JSON. False, with a sentence, where the file cannot be written.
bool write_json(const std::string &path, const Options &options, int ranks, const Outcome &outcome,
                const std::vector<Check> &checks, std::string &error);

}  // namespace flx::trainer

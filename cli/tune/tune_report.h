// The output of `dslaunch tune`. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/tune/tuning.h"

namespace dslaunch {

// Returns the line about the newest row while the search runs: "trial 3: micro-batch 8 x 4, ZeRO 1:
// 41.2 ms a step (predicted 43.0 ms), 210.1 MB".
std::string ProgressLine(const TuneProblem& problem, const TuneRow& row, size_t number);

// Returns the table of all rows, the fastest first, and a line about why the search ended.
std::string TuneTable(const TuneOutcome& outcome);

// Returns what was chosen, as one line: "micro-batch 8 x 4, ZeRO 1: 41.2 ms a step, 12 % less than
// the recipe's 46.8 ms". Precondition: outcome.best.
std::string ChoiceText(const TuneOutcome& outcome);

// Returns the value of --json; docs/reference/json.md has its fields. `output` is the file of the
// recipe; empty: none was written.
nlohmann::ordered_json TuneJson(const TuneOutcome& outcome, const std::string& output);

// Returns why no configuration was found, as one line. Precondition: !outcome.best.
std::string NothingFoundText(const TuneOutcome& outcome);

}  // namespace dslaunch

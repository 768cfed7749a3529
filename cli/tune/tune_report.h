// Formats the output of `dslaunch tune`. All functions are pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "cli/tune/tuning.h"

namespace dslaunch {

// Returns the line about the newest row while the search runs, such as "trial 3: micro-batch 8 x 4,
// ZeRO 1: 41.2 ms a step (predicted 43.0 ms), 210.1 MB".
std::string ProgressLine(const TuneProblem& problem, const TuneRow& row, size_t number);

// Returns the table of all rows, the fastest row first, and a line with the reason for the end of
// the search.
std::string TuneTable(const TuneOutcome& outcome);

// Returns the choice as one line, such as "micro-batch 8 x 4, ZeRO 1: 41.2 ms a step, 12 % less
// than the recipe's 46.8 ms". Precondition: outcome.best is set.
std::string ChoiceText(const TuneOutcome& outcome);

// Returns the value of --json; docs/reference/json.md lists its fields. `output` is the file of the
// recipe; empty if none was written.
nlohmann::ordered_json TuneJson(const TuneOutcome& outcome, const std::string& output);

// Returns as one line why no configuration was found. Precondition: outcome.best is not set.
std::string NothingFoundText(const TuneOutcome& outcome);

}  // namespace dslaunch

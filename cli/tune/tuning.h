// Runs the search of `dslaunch tune`: carries out a Tuner's decisions as jobs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/tune/trial_process.h"
#include "cli/tune/tuner.h"

namespace dslaunch {

struct TuneRequest {
  TuneProblem problem;
  std::string recipe_json;                // the recipe with the options of the user
  std::vector<std::string> launch_words;  // arguments before `train`, such as "-H" and "hosts"
  std::vector<std::string> recipe_words;  // arguments after `train`: the recipe and its options
  double budget_s = 0;
  std::vector<TuneRow> finished;  // results of an earlier search
};

struct TuneOutcome {
  TuneProblem problem;
  std::vector<TuneRow> rows;
  std::optional<TuneRow> best;  // chosen configuration; nullopt if no configuration was measured
  std::string reason;           // reason why the search ended
  size_t untried = 0;           // number of configurations without a row that could still be tried
  size_t dropped = 0;  // number of configurations without a row that were dropped with others
  int signal = 0;      // signal from the user that ended the search; 0 if none did
  double elapsed_s = 0;
};

// Returns the arguments of the job that plans the candidate's memory.
std::vector<std::string> PlanArguments(const TuneRequest& request, const TuneProblem& problem,
                                       const Candidate& candidate);

// Returns the arguments of the job that trains `steps` steps with the candidate.
std::vector<std::string> TrialArguments(const TuneRequest& request, const TuneProblem& problem,
                                        const Candidate& candidate, int64_t steps);

// Searches until the tuner ends the search or the user does. Calls `on_row` after each change of
// Tuner::rows(). `elapsed_s` returns the seconds since the start of the search. Returns an error if
// not even the memory of the recipe's own configuration can be planned, because then its input is
// wrong. If `on_row` returns an error, ends the search and returns that error.
Result<TuneOutcome> Search(const TuneRequest& request, JobRunner& runner,
                           const std::function<double()>& elapsed_s,
                           const std::function<Result<void>(const Tuner&)>& on_row);

}  // namespace dslaunch

// Reads what the jobs of `dslaunch tune` print: a memory plan, or a trial. Pure; the text comes
// from nodes and is not trusted.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "cli/tune/tuner.h"

namespace dslaunch {

// A process of `dslaunch train --json` that has ended.
struct JobRun {
  int exit_code = 0;
  bool timed_out = false;  // ended at its limit
  int signal = 0;          // signal of the user that ended it; 0: none
  double wall_s = 0;
  double limit_s = 0;
  std::string out = {};  // stdout: lines of rank 0, and the closing block as JSON
  std::string err = {};  // the end of stderr
};

inline constexpr size_t kMaxJobOutputBytes =
    4 << 20;  // limit of JobRun::out and err; only the end is kept
inline constexpr size_t kMaxTrialSteps = 10'000;

// Reads the output of a job with --plan_memory and --metrics_jsonl /dev/stdout. In a pipeline the
// stage that needs the most memory counts.
PlanResult ReadPlan(const JobRun& run);

// Reads the output of a job with run.mode trial (trainer/program/trial.h), whose steps train
// `global_batch` samples. Omits steps with fewer samples, which are at the end of an epoch, or
// scales their times if all steps have fewer.
TrialResult ReadTrial(const JobRun& run, int64_t global_batch);

// Returns a finite number above 0; nullopt for any other value.
std::optional<double> SecondsOf(const nlohmann::json& value);

}  // namespace dslaunch

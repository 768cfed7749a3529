// Reads the output of the jobs of `dslaunch tune`: a memory plan, or a trial. The text comes from
// nodes and is not trusted. All functions are pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "cli/tune/tuner.h"

namespace dslaunch {

// The result of a process of `dslaunch train --json` that has ended.
struct JobRun {
  int exit_code = 0;
  bool timed_out = false;  // whether the process was ended at its time limit
  int signal = 0;          // signal from the user that ended the process; 0 if none did
  double wall_s = 0;
  double limit_s = 0;
  std::string out = {};  // stdout: lines of rank 0, and the closing block as JSON
  std::string err = {};  // the end of the process's stderr
};

// Limit of JobRun::out and err; only the end is kept.
inline constexpr size_t kMaxJobOutputBytes = 4 << 20;
inline constexpr size_t kMaxTrialSteps = 10'000;

// Reads the output of a job with --plan_memory and --metrics_jsonl /dev/stdout. In a pipeline, the
// stage that needs the most memory determines the result.
PlanResult ReadPlan(const JobRun& run);

// Reads the output of a job with run.mode trial (trainer/program/trial.h), whose steps train
// `global_batch` samples. Omits steps with fewer samples, which occur at the end of an epoch; if
// all steps have fewer samples, scales their times instead.
TrialResult ReadTrial(const JobRun& run, int64_t global_batch);

// Returns the value if it is a finite number above 0; nullopt for any other value.
std::optional<double> SecondsOf(const nlohmann::json& value);

}  // namespace dslaunch

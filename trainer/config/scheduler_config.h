// Defines the section "scheduler" of an engine configuration: schedules of DeepSpeed and PyTorch,
// with their names, defaults and formulas (lr_schedule.h).
//
//   "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 100}}
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "trainer/config/lr_schedule.h"
#include "trainer/config/optimizer_config.h"

namespace dslaunch {

struct SchedulerConfig {
  std::string name;  // name of the schedule, spelled as in the recipe; empty without a schedule
  LrSchedule schedule;
  // True if total_num_steps is "auto", so that FitToRun sets it before the first step.
  bool fits_run = false;
};

// Sets the length of a schedule whose total_num_steps is "auto". Does not change any other
// schedule.
void FitToRun(SchedulerConfig& scheduler, int64_t steps);

// Returns a sentence if the warm-up does not end within the schedule's length, or within the run of
// `steps` steps (nullopt if unknown); otherwise "". `lr` is the optimizer's learning rate.
std::string WarmupRemark(const SchedulerConfig& scheduler, double lr, std::optional<int64_t> steps);

// Reads the section `scheduler`. Throws TrainError kBadInput, naming the key.
SchedulerConfig ParseScheduler(JsonObject object, const OptimizerConfig& optimizer);
// Returns the scheduler as configuration keys; null if there is no schedule.
nlohmann::ordered_json ShowScheduler(const SchedulerConfig& scheduler);

}  // namespace dslaunch

// The section "scheduler" of an engine configuration: schedules of DeepSpeed and PyTorch, with
// their names, defaults and formulas (lr_schedule.h).
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
  std::string name;  // as written in the recipe; empty: none
  LrSchedule schedule;
  // total_num_steps is "auto": FitToRun sets it before the first step.
  bool fits_run = false;
};

// Sets the length of a schedule that is to end with the run; leaves others as they are.
void FitToRun(SchedulerConfig& scheduler, int64_t steps);

// One sentence where the warm-up does not end before the schedule's own length, or before the run
// of so many steps does (nullopt: not known); else empty. `lr` is the optimizer's.
std::string WarmupRemark(const SchedulerConfig& scheduler, double lr, std::optional<int64_t> steps);

// Throws TrainError kBadInput, naming the key.
SchedulerConfig ParseScheduler(JsonObject object, const OptimizerConfig& optimizer);
// null without a schedule.
nlohmann::ordered_json ShowScheduler(const SchedulerConfig& scheduler);

}  // namespace dslaunch

// Writes run.json: facts about a run for the job's report (proto/contract/rank_files.h).
#pragma once

#include <cstdint>
#include <string>

#include "trainer/train/memory_plan.h"

namespace dslaunch {

struct RunInfo {
  std::string model;
  int64_t parameters = 0;  // elements in the whole model
  std::string dtype;
  int world_size = 1;
  int zero_stage = 0;
  // Floating-point operations of a step over all ranks; 0 if not counted.
  double flops_per_step = 0;
  int64_t batch = 0;  // samples in a step, over all ranks
  int64_t micro_batch = 0;
  int64_t accumulation_steps = 0;
  std::string optimizer;
  double lr = 0;     // configured learning rate, before a schedule changes it
  std::string data;  // name of the data set, as returned by DataName
  MemoryPlan plan;
};

std::string RunJson(const RunInfo& info);

}  // namespace dslaunch

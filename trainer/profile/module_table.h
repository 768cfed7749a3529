// The cost of a model's modules in a forward pass (flops_profiler). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/monitor_config.h"

namespace dslaunch {

// One outermost operator of a forward pass.
struct ForwardOp {
  // The module whose parameter it reads: "h.0.attn.c_attn"; "" for the root.
  std::optional<std::string> module;
  double flops = 0;
  double seconds = 0;
};

struct ModuleRow {
  std::string name;  // "" for the whole model
  std::string type;
  int64_t parameters = 0;  // own elements; in the result including those of inner modules
  int depth = 0;           // 0 for the whole model
  double flops = 0;        // including those of inner modules
  double seconds = 0;
};

// Fills in the rows of `modules`, whose types and parameters are given. They are in the order of
// the model, each after its parent. An operator that reads no parameter, such as attention between
// two projections, is counted for the innermost module that contains the neighbours that do.
std::vector<ModuleRow> ModuleRows(std::vector<ModuleRow> modules,
                                  const std::vector<ForwardOp>& operators);

// One step on one rank.
struct FlopsProfile {
  int64_t step = 0;
  int64_t micro_batches = 1;  // number in the step; the rows cover all
  int ranks = 1;
  double step_s = 0;
  std::vector<ModuleRow> rows = {};
};

// Returns text for people: the whole model, the most expensive modules at each depth, and every
// module.
std::string FlopsProfileText(const FlopsProfile& profile, const FlopsProfilerConfig& config);

}  // namespace dslaunch

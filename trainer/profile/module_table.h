// Reports the cost of a model's modules in a forward pass (flops_profiler). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/monitor_config.h"

namespace dslaunch {

// An operator of a forward pass that no other operator called.
struct ForwardOp {
  // The module whose parameter the operator reads, such as "h.0.attn.c_attn"; "" for the root;
  // nullopt if the operator reads no parameter.
  std::optional<std::string> module;
  double flops = 0;
  double seconds = 0;
};

struct ModuleRow {
  std::string name;  // name of the module; empty for the whole model
  std::string type;
  // The number of elements of the module's own parameters; in results, also of inner modules'
  // parameters.
  int64_t parameters = 0;
  int depth = 0;     // nesting depth of the module; 0 for the whole model
  double flops = 0;  // floating-point operations, including those of inner modules
  double seconds = 0;
};

// Returns `modules`, whose names, types and parameters are given, with their costs. Modules are in
// the order of the model, each after its parent. An operator that reads no parameter, such as
// attention between two projections, counts for the innermost module that contains the neighboring
// operators with parameters.
std::vector<ModuleRow> ModuleRows(std::vector<ModuleRow> modules,
                                  const std::vector<ForwardOp>& operators);

// The costs of a model's modules in one step on one rank.
struct FlopsProfile {
  int64_t step = 0;
  int64_t micro_batches = 1;  // number of micro-batches in the step; the rows include all of them
  int ranks = 1;
  double step_s = 0;
  std::vector<ModuleRow> rows = {};
};

// Returns a report about the whole model, the most expensive modules at each depth, and every
// module.
std::string FlopsProfileText(const FlopsProfile& profile, const FlopsProfilerConfig& config);

}  // namespace dslaunch

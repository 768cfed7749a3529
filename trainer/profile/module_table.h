// What the modules of a model cost in a forward pass (flops_profiler). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/monitor_config.h"

namespace dslaunch {

// One outermost operator of a forward pass.
struct ForwardOp {
  std::optional<std::string> module;  // whose parameter it reads: "h.0.attn.c_attn"; "": the root's
  double flops = 0;
  double seconds = 0;
};

struct ModuleRow {
  std::string name;  // "": the whole model
  std::string type;
  int64_t parameters = 0;  // elements of its own; in the result with those of the modules inside it
  int depth = 0;           // 0: the whole model
  double flops = 0;        // with those of the modules inside it
  double seconds = 0;
};

// `modules` are in the order of the model, each after the one that it is in; "type" and
// "parameters" are given. An operator that reads no parameter, as attention between two
// projections, belongs to the innermost module that holds those of its neighbours that do.
std::vector<ModuleRow> ModuleRows(std::vector<ModuleRow> modules,
                                  const std::vector<ForwardOp>& operators);

// What one step did on one rank.
struct FlopsProfile {
  int64_t step = 0;
  int64_t micro_batches = 1;  // of the step, which all are in the rows
  int ranks = 1;
  double step_s = 0;
  std::vector<ModuleRow> rows = {};
};

// For people: the whole model, at each depth the costliest modules, and every module.
std::string FlopsProfileText(const FlopsProfile& profile, const FlopsProfilerConfig& config);

}  // namespace dslaunch

// The report of flops_profiler.
#pragma once

#include <torch/nn/module.h>

#include <vector>

#include "trainer/profile/module_table.h"

namespace dslaunch {

// Makes the configuration's file, so that one that cannot be written shows before training does.
// Throws kIo.
void PrepareFlopsReport(const FlopsProfilerConfig& config);

// Prints it, or writes it into the configuration's file. Throws kIo. `profile.rows` become those of
// `module`.
void ReportFlops(const FlopsProfilerConfig& config, const torch::nn::Module& module,
                 const std::vector<ForwardOp>& operators, FlopsProfile profile);

}  // namespace dslaunch

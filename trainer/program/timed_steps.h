// Trains a recipe's steps and measures each step, for run.mode "compare_precision" and "trial".
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "dslaunch/process_group.h"
#include "trainer/base/memory_bytes.h"
#include "trainer/config/recipe.h"
#include "trainer/data/dataset.h"
#include "trainer/train/progress.h"

namespace dslaunch {

// The measurements of some steps. `seconds` and `samples` have an entry for each step.
struct TimedSteps {
  std::vector<double> seconds;   // durations on this rank, including waits for other ranks
  std::vector<int64_t> samples;  // samples of each step, over all ranks
  double last_loss = 0;          // loss of the last step, mean over the ranks
  int64_t skipped = 0;           // number of steps whose gradients overflowed
  int64_t peak_bytes = 0;        // peak bytes of tensors, maximum over the ranks
  MemoryBytes memory;            // maximum over the ranks in each category of memory
};

// Prepares the model, trains run.steps steps (or run.epochs epochs), and waits for the device after
// each step. Does not evaluate or save. On each rank, calls `report` after each step with the total
// number of steps. Collective. Throws TrainError if training fails.
TimedSteps TimeSteps(const Recipe& recipe, const Dataset& data, const ProcessGroup& group,
                     const std::function<void(const StepInfo&, int64_t total_steps)>& report);

// Returns the median; for an even number of values, the upper of the two middle values.
// Precondition: `values` is not empty.
double Median(std::vector<double> values);

}  // namespace dslaunch

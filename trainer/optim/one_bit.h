// Creates optimizers that exchange 1 bit per element: 1-bit Adam (Tang et al., ICML 2021), 0/1 Adam
// (Lu et al., ICLR 2023) and 1-bit LAMB (Li et al., HiPC 2022), with the phases, defaults and
// padding of DeepSpeed 0.19.8. As in DeepSpeed, the bias of the averages is not corrected.
//
// DeepSpeed counts the call that creates its state as a step; these optimizers count only updates.
#pragma once

#include <memory>

#include "trainer/optim/optimizer.h"

namespace dslaunch {

// Returns the optimizer for the type in inputs.config. `mean` may be null if there is only one
// rank.
std::unique_ptr<Optimizer> MakeOneBitOptimizer(const Optimizer::Inputs& inputs,
                                               std::shared_ptr<CompressedMean> mean);

// The state of 0/1 Adam's intervals after a number of updates.
struct ZeroOneIntervals {
  int64_t variance = 1;  // number of steps between two updates of the variance
  int64_t exchange = 1;  // number of steps between two exchanges after the variance is frozen
  // Number of variance updates since `variance` was last doubled, and number of steps since
  // `exchange` was last doubled.
  int64_t variance_updates = 0, exchange_steps = 0;
};

// Returns the intervals after the update number `update`, given the `intervals` after the previous
// update.
ZeroOneIntervals After(ZeroOneIntervals intervals, int64_t update, const OptimizerConfig& config);

}  // namespace dslaunch

// Optimizers that exchange 1 bit of each element: 1-bit Adam (Tang et al., ICML 2021), 0/1 Adam (Lu
// et al., ICLR 2023) and 1-bit LAMB (Li et al., HiPC 2022), with DeepSpeed 0.19.8's phases,
// defaults and rounding to parts. None corrects the bias of its averages, as in DeepSpeed.
//
// DeepSpeed counts the call in which it makes its state as a step; here updates are counted.
#pragma once

#include <memory>

#include "trainer/optim/optimizer.h"

namespace dslaunch {

// `mean` may be null: one rank.
std::unique_ptr<Optimizer> MakeOneBitOptimizer(const Optimizer::Inputs& inputs,
                                               std::shared_ptr<CompressedMean> mean);

// 0/1 Adam's intervals after so many updates. Pure.
struct ZeroOneIntervals {
  int64_t variance = 1;  // steps from one update of the variance to the next
  int64_t exchange = 1;  // steps from one exchange to the next, once the variance stays
  int64_t variance_updates = 0, exchange_steps = 0;  // since the interval has doubled
};

// After update number `update`, which is the next after those that `intervals` has seen.
ZeroOneIntervals After(ZeroOneIntervals intervals, int64_t update, const OptimizerConfig& config);

}  // namespace dslaunch

// An optimizer of torch::optim, or one that is derived from it, in place of the configuration's.
#pragma once

#include <memory>
#include <vector>

#include "dslaunch/engine.h"
#include "trainer/optim/optimizer.h"

namespace dslaunch {

// What `make` makes of `parts`, which are of `parameters`. Its learning rates are those of its own
// groups, and its state is its own: State has none of it. Without `any`, only optimizers that are
// known to treat each element by itself are taken, because a part may be a slice of a parameter.
// Throws TrainError kBadInput where `make` returns none, one that may not be taken, or one that
// does not update exactly `parts`.
std::unique_ptr<Optimizer> WrapTorchOptimizer(const OptimizerFactory& make,
                                              const std::vector<NamedTensor>& parameters,
                                              const std::vector<WeightPart>& parts, bool any);

}  // namespace dslaunch

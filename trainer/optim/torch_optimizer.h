// Adapts an optimizer of torch::optim, or of a derived class, so that it can replace the configured
// optimizer.
#pragma once

#include <memory>
#include <vector>

#include "dslaunch/engine.h"
#include "trainer/optim/optimizer.h"

namespace dslaunch {

// Returns the optimizer that `make` creates for `parts`, which are parts of `parameters`. lrs()
// returns the rates of the optimizer's own groups, and its state is not available as State. Unless
// `any` is set, accepts only optimizers that are known to treat each element independently, because
// a part may be a slice of a parameter. Throws TrainError kBadInput if `make` returns null, an
// optimizer that is not accepted, or an optimizer that does not update exactly `parts`.
std::unique_ptr<Optimizer> WrapTorchOptimizer(const OptimizerFactory& make,
                                              const std::vector<NamedTensor>& parameters,
                                              const std::vector<WeightPart>& parts, bool any);

}  // namespace dslaunch

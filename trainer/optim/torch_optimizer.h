// Wraps an optimizer of torch::optim, or a class derived from one, that replaces the configured
// optimizer.
#pragma once

#include <memory>
#include <vector>

#include "dslaunch/engine.h"
#include "trainer/optim/optimizer.h"

namespace dslaunch {

// Returns an optimizer of `parts`, which are parts of `parameters`, made by `make`. Its learning
// rates are the rates of its own groups, and its state is not available as State. Unless `any` is
// set, accepts only optimizers known to treat each element independently, because a part may be a
// slice of a parameter. Throws TrainError kBadInput if `make` returns null, an optimizer that is
// not accepted, or one that does not update exactly `parts`.
std::unique_ptr<Optimizer> WrapTorchOptimizer(const OptimizerFactory& make,
                                              const std::vector<NamedTensor>& parameters,
                                              const std::vector<WeightPart>& parts, bool any);

}  // namespace dslaunch

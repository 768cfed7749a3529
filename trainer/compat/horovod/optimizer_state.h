// What an optimizer of LibTorch has besides parameters, in a form that travels: numbers and
// tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace dslaunch::horovod {

// Its options and the numbers of its state, and which tensors there are. For the same groups of
// parameters always as many. Throws TrainError kUsage for an optimizer that is not known.
std::vector<double> OptimizerNumbers(torch::optim::Optimizer& optimizer);

// Takes what OptimizerNumbers gave for an optimizer of this kind. Tensors that it did not have
// are dropped, those that it had get memory where they lack it. Returns the tensors, for the
// caller to read or to fill, in an order that depends on `numbers` only. Throws TrainError
// kBadInput where `numbers` are of other groups.
std::vector<at::Tensor> SetOptimizerNumbers(torch::optim::Optimizer& optimizer,
                                            const std::vector<double>& numbers);

}  // namespace dslaunch::horovod

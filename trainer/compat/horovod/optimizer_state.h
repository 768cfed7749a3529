// Converts the options and state of a LibTorch optimizer to numbers and tensors, in order to send
// or save them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace dslaunch::horovod {

// Returns the optimizer's options, the numbers in its state, and 1 or 0 for each tensor that its
// state may have. Optimizers with equal groups of parameters give equally many numbers. Throws
// TrainError kUsage for an unknown kind of optimizer.
std::vector<double> OptimizerNumbers(torch::optim::Optimizer& optimizer);

// Sets options and state to `numbers`, which OptimizerNumbers returned for an optimizer of the same
// kind. Discards tensors that the other optimizer did not have, and allocates missing tensors that
// it had. Returns the tensors, which the caller may read or fill, in an order that depends only on
// `numbers`. Throws TrainError kBadInput if `numbers` belong to other groups of parameters.
std::vector<at::Tensor> SetOptimizerNumbers(torch::optim::Optimizer& optimizer,
                                            const std::vector<double>& numbers);

}  // namespace dslaunch::horovod

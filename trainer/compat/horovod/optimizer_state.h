// The options and state of a LibTorch optimizer as numbers and tensors, to send or save them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace torch::optim {
class Optimizer;
}

namespace dslaunch::horovod {

// Returns the optimizer's options, the numbers of its state, and 1 or 0 for each tensor that it may
// have. Equal groups of parameters give equally many numbers. Throws TrainError kUsage for an
// unknown optimizer.
std::vector<double> OptimizerNumbers(torch::optim::Optimizer& optimizer);

// Sets options and state to `numbers`, which OptimizerNumbers returned for an optimizer of this
// kind. Drops tensors that it did not have, and allocates missing ones that it had. Returns the
// tensors, for the caller to read or to fill, in an order that depends on `numbers` only. Throws
// TrainError kBadInput if `numbers` are of other groups.
std::vector<at::Tensor> SetOptimizerNumbers(torch::optim::Optimizer& optimizer,
                                            const std::vector<double>& numbers);

}  // namespace dslaunch::horovod

// MNIST and data sets of its format (Fashion-MNIST, KMNIST), for examples and first steps.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace dslaunch {

struct LabeledTensors {
  at::Tensor inputs;   // float [N, 1, H, W], 0 to 1
  at::Tensor targets;  // int64 [N]
};

// The training images of `folder`, or with `train` false the test images. It must hold both: the
// files {train,t10k}-{images-idx3,labels-idx1}-ubyte, each with or without .gz. Throws TrainError,
// naming the file.
LabeledTensors ReadMnist(const std::string& folder, bool train = true);

}  // namespace dslaunch

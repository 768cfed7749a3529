// Reads MNIST and data sets in its format (Fashion-MNIST, KMNIST), for examples.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace dslaunch {

struct LabeledTensors {
  at::Tensor inputs;   // images, float [N, 1, H, W], values from 0 to 1
  at::Tensor targets;  // classes, int64 [N]
};

// Reads the training images of `folder`, or the test images if `train` is false. The folder must
// hold both sets: {train,t10k}-{images-idx3,labels-idx1}-ubyte, each with or without .gz. Throws
// TrainError, naming the file, if a file is missing or not valid.
LabeledTensors ReadMnist(const std::string& folder, bool train = true);

}  // namespace dslaunch

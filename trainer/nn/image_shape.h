#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/base/train_error.h"

namespace dslaunch {

struct ImageShape {
  int64_t channels = 0, height = 0, width = 0;
};

// Converts a data set's input_shape. Throws kBadInput, naming the model type, if the data set's
// samples are not images.
inline ImageShape ToImageShape(const std::vector<int64_t>& input_shape,
                               const std::string& model_type) {
  if (input_shape.size() == 3) return {input_shape[0], input_shape[1], input_shape[2]};
  throw TrainError(ExitCode::kBadInput,
                   "model.type " + model_type +
                       " takes images, but the data has none; use data of type idx, cifar or "
                       "image_folder");
}

}  // namespace dslaunch

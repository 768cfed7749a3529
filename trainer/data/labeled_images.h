// Defines labeled images, which the readers of image formats return.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dslaunch {

enum class Split { kTrain, kTest };

struct LabeledImages {
  std::vector<int64_t> dims;    // [N, C, H, W], each at least 1
  std::vector<uint8_t> pixels;  // values in row-major order
  std::vector<uint8_t> labels;  // label of each of the N images
};

// Throws kBadInput if a label is not below num_classes. The message names the file and the sample's
// index in the file, counted from 0.
void CheckLabels(const std::string& file, std::span<const uint8_t> labels, int64_t num_classes);

}  // namespace dslaunch

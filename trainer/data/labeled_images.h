// Images with labels, as the readers of image formats return them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dslaunch {

enum class Split { kTrain, kTest };

struct LabeledImages {
  std::vector<int64_t> dims;    // {N, C, H, W}, each at least 1
  std::vector<uint8_t> pixels;  // row-major, product of dims
  std::vector<uint8_t> labels;  // N
};

// Throws kBadInput if a label is not below num_classes, naming the file and the number of the
// sample in it, from 0.
void CheckLabels(const std::string& file, std::span<const uint8_t> labels, int64_t num_classes);

}  // namespace dslaunch

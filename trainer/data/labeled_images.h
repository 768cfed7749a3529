// Images with a label each, as the formats of images give them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dslaunch {

enum class Split { kTrain, kTest };

struct LabeledImages {
  std::vector<int64_t> dims;    // {N, C, H, W}, every one at least 1
  std::vector<uint8_t> pixels;  // row-major, product of dims
  std::vector<uint8_t> labels;  // N
};

// Throws kBadInput, naming the file and the sample, counted from 0 in this file.
void CheckLabels(const std::string& file, std::span<const uint8_t> labels, int64_t num_classes);

}  // namespace dslaunch

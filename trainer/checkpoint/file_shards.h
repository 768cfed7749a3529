// Divides tensors among files of a limited size. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/checkpoint/safetensors.h"

namespace dslaunch {

// The default limit in transformers' save_pretrained.
inline constexpr uint64_t kMaxShardBytes = 5'000'000'000;

struct FileShard {
  std::string name;             // "model.safetensors", "model-00001-of-00003.safetensors"
  std::vector<size_t> tensors;  // indices, in order
  uint64_t bytes = 0;           // sum over the tensors
};

// Returns files of at most `max_bytes` with all tensors, in order; at least one file. A tensor that
// is larger has a file of its own. File names begin with `kind`, such as "model".
std::vector<FileShard> DivideIntoShards(const std::vector<TensorHeader>& tensors,
                                        const std::string& kind, uint64_t max_bytes);

}  // namespace dslaunch

// Divides tensors among files of a limited size. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/checkpoint/safetensors.h"

namespace dslaunch {

// Maximum size of a file in bytes, which is the default of save_pretrained in transformers.
inline constexpr uint64_t kMaxShardBytes = 5'000'000'000;

struct FileShard {
  std::string name;             // file name, such as "model-00001-of-00003.safetensors"
  std::vector<size_t> tensors;  // indices of the tensors in the file, in order
  uint64_t bytes = 0;           // total size of the tensors in bytes
};

// Divides all tensors, in order, into files of at most `max_bytes`. Returns at least one file. A
// larger tensor gets a separate file. File names begin with `kind`, such as "model".
std::vector<FileShard> DivideIntoShards(const std::vector<TensorHeader>& tensors,
                                        const std::string& kind, uint64_t max_bytes);

}  // namespace dslaunch

// Tensors in a safetensors file, which unlike one of torch::save cannot hold code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dslaunch/named_tensor.h"

namespace dslaunch {

// Size and checksum of a file, by which a reader can verify it. The checksum detects damage, not
// forgery.
struct SavedFile {
  uint64_t bytes = 0;
  uint32_t crc32 = 0;
};

// Writes a new file of dense tensors and returns once it is on the disk. Throws TrainError kIo,
// naming the file, if it exists or cannot be written.
SavedFile SaveTensors(const std::string& path, const std::vector<NamedTensor>& tensors);

// Reads all tensors of a file into main memory, ordered by name. Throws TrainError, naming the
// file: kBadInput if it is missing or not a valid safetensors file, kIo if it cannot be read.
std::vector<NamedTensor> LoadTensors(const std::string& path);

}  // namespace dslaunch

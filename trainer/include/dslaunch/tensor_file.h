// Reads and writes tensors in safetensors files. Unlike a file of torch::save, a safetensors file
// cannot contain code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dslaunch/named_tensor.h"

namespace dslaunch {

// Size and checksum with which a reader can verify a file. The checksum detects damage, but not
// forgery.
struct SavedFile {
  uint64_t bytes = 0;
  uint32_t crc32 = 0;
};

// Writes dense tensors to a new file and returns once the file is on the disk. Throws TrainError
// kIo, naming the file, if the file exists or cannot be written.
SavedFile SaveTensors(const std::string& path, const std::vector<NamedTensor>& tensors);

// Reads all tensors of a file into main memory. Returns them ordered by name. Throws TrainError,
// naming the file: kBadInput if the file is missing or not a valid safetensors file, kIo if it
// cannot be read.
std::vector<NamedTensor> LoadTensors(const std::string& path);

}  // namespace dslaunch

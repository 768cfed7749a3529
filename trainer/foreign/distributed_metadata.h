// Reads and writes the file .metadata of a checkpoint of torch.distributed.checkpoint. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/foreign/blocks.h"

namespace dslaunch {

// The bytes of an archive of torch.save within a file.
struct ArchivePlace {
  size_t file = 0;  // index of the file in DistributedMetadata::files
  uint64_t begin = 0;
  uint64_t bytes = 0;
};

struct DistributedTensor {
  std::string key;  // key of the tensor, such as "model.fc1.weight"
  // Keys of the program's nested dicts, such as "model" and "fc1.weight" for {"model":
  // {"fc1.weight": ...}}. Joined by dots, they are `key`. Empty if not known.
  std::vector<std::string> path;
  std::string dtype;  // dtype's name in safetensors files, such as "F32"
  std::vector<int64_t> shape;
  std::vector<TensorBlock> blocks;   // blocks of the tensor that have elements
  std::vector<ArchivePlace> places;  // archive of each of `blocks`
};

// An object other than a tensor, pickled in an archive.
struct DistributedValue {
  std::string key;
  ArchivePlace place;
};

struct DistributedMetadata {
  std::vector<std::string> files;  // names of the files in the checkpoint's folder
  std::vector<DistributedTensor> tensors;
  std::vector<DistributedValue> values;
};

// Returns the bytes of `.metadata`, a pickle that torch.distributed.checkpoint can read.
// Precondition: `metadata.values` is empty.
std::string FormatDistributedMetadata(const DistributedMetadata& metadata);

inline constexpr char kDistributedMetadataFile[] = ".metadata";
inline constexpr size_t kMaxDistributedMetadataBytes = size_t{256} << 20;

// Parses a file that is not trusted. `source` names the file in errors. Throws kBadInput for a
// damaged file, for names that are not plain names in the folder, for archives that overlap in one
// file or end beyond 2^63 bytes, for blocks without an archive, and for archives that were
// transformed (compressed). Does not check whether blocks cover their tensor; SlicesOf checks this.
DistributedMetadata ParseDistributedMetadata(std::string_view bytes, const std::string& source);

}  // namespace dslaunch

#include "trainer/checkpoint/file_shards.h"

#include <algorithm>

#include "trainer/base/format.h"

namespace dslaunch {

std::vector<FileShard> DivideIntoShards(const std::vector<TensorHeader>& tensors,
                                        const std::string& kind, uint64_t max_bytes) {
  std::vector<FileShard> shards(1);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t bytes = BytesOf(tensors[i]);
    if (shards.back().bytes > 0 && bytes > max_bytes - std::min(max_bytes, shards.back().bytes)) {
      shards.emplace_back();
    }
    shards.back().tensors.push_back(i);
    shards.back().bytes += bytes;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].name = kind +
                     (shards.size() == 1 ? "" : Format("-%05zu-of-%05zu", i + 1, shards.size())) +
                     ".safetensors";
  }
  return shards;
}

}  // namespace dslaunch

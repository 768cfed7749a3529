// Writes the weights of a checkpoint in the format of transformers.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/weights/weight_shards.h"

namespace dslaunch {

// The weights and buffers of a checkpoint in the form in which they will be written.
struct ConvertedWeights {
  std::vector<TensorHeader> headers;
  // Record of each tensor; the checkpoint owns the records.
  std::vector<const TensorRecord*> records;
  uint64_t bytes = 0;  // bytes of all tensors together
};

// Plans the conversion. Floating-point tensors get `dtype`. Other tensors, and all tensors if
// `dtype` is nullopt, keep their dtypes. Tensors in formats that LibTorch cannot convert (float8)
// also keep their dtypes. The checkpoint must outlive the result.
ConvertedWeights PlanWeights(const Checkpoint& checkpoint, std::optional<at::ScalarType> dtype);

// Reads the tensors in blocks and writes them with WriteWeights. Calls `on_written`, unless it is
// empty, with the number of bytes of each block. Throws kBadInput if another process is writing to
// the folder or the checkpoint is damaged, and kIo if a file cannot be read or written.
void ConvertWeights(const Checkpoint& checkpoint, const ConvertedWeights& weights,
                    const WeightOutput& output,
                    const std::function<void(uint64_t bytes)>& on_written);

// Copies config.json, generation_config.json and the tokenizer's files to the folder `to`, each
// from the first of `folders` that contains the file. Returns the names of the copied files. Throws
// kIo if a file cannot be copied, and kBadInput if a file is larger than 1 GiB.
std::vector<std::string> CopyModelFiles(const std::vector<std::string>& folders,
                                        const std::string& to);

}  // namespace dslaunch

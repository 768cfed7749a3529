// Writes the weights of a checkpoint as transformers reads them.
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

// The weights and buffers of a checkpoint, as they are to be written.
struct ConvertedWeights {
  std::vector<TensorHeader> headers;
  std::vector<const TensorRecord*> records;  // owned by the checkpoint
  uint64_t bytes = 0;                        // sum over the tensors
};

// Plans the conversion. Floating-point numbers get `dtype`; without it, and others, keep theirs.
// Formats that LibTorch does not have here (float8) are kept too. The checkpoint must outlive the
// result.
ConvertedWeights PlanWeights(const Checkpoint& checkpoint, std::optional<at::ScalarType> dtype);

// Reads the tensors in blocks and writes them with WriteWeights. `on_written` is called with the
// bytes of each block; may be empty. Throws the errors of WriteWeights and StoredTensors.
void ConvertWeights(const Checkpoint& checkpoint, const ConvertedWeights& weights,
                    const WeightOutput& output,
                    const std::function<void(uint64_t bytes)>& on_written);

// Copies config.json, generation_config.json and the tokenizer's files from the first of `folders`
// that has them to `to`. Returns the names of the copied files. Throws kIo, and kBadInput for a
// file of more than 1 GiB.
std::vector<std::string> CopyModelFiles(const std::vector<std::string>& folders,
                                        const std::string& to);

}  // namespace dslaunch

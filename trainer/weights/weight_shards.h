// Writes weights in the layout of transformers' save_pretrained: as model.safetensors, or in shards
// of at most 5 GB with the index model.safetensors.index.json.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trainer/checkpoint/file_shards.h"
#include "trainer/checkpoint/safetensors.h"

namespace dslaunch {

struct WeightOutput {
  std::string folder;  // folder of the weights, created if it does not exist
  // Identifies the source and the form of the output. If an earlier process with the same `work`
  // was interrupted, its complete shards are kept. If `work` is empty, nothing is kept.
  std::string work = {};
  uint64_t max_shard_bytes = kMaxShardBytes;
  // Called when the files have their final names, before the write counts as complete; may be
  // empty. If the process is interrupted, the process that continues the write calls the function
  // again.
  std::function<void()> on_published = {};
  // Called for each kept shard with the number of bytes of its tensors; may be empty.
  std::function<void(uint64_t bytes)> on_kept = {};
};

// Writes all bytes of tensor `index` into `file`, in pieces of any size.
using WriteTensor = std::function<void(size_t index, NewSafetensorsFile& file)>;

// Calls write(index, file) once for each of `tensors`, in order, except for those in kept shards.
// Shards are written under temporary names, and renamed when all of them are on the disk. Then
// weight files of earlier writes that are not part of this write are removed. Throws kBadInput if
// another process is writing to the folder. Throws kIo, with the number of bytes that are needed,
// if the disk is too small or becomes full; complete shards of output.work are then kept for the
// next process.
void WriteWeights(const WeightOutput& output, const std::vector<TensorHeader>& tensors,
                  const WriteTensor& write);

// Returns whether a process that wrote output.work into the folder was interrupted, so that its
// shards can be kept.
bool IsInterrupted(const WeightOutput& output);

// Calls write(path) with a temporary path, and renames the resulting file to `name`. Throws kIo if
// the file cannot be replaced.
void ReplaceFile(const std::string& folder, const std::string& name,
                 const std::function<void(const std::string& path)>& write);

}  // namespace dslaunch

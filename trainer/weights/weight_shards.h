// Writes weights as transformers' save_pretrained does: as model.safetensors, or in shards of at
// most 5 GB with the index model.safetensors.index.json.
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
  std::string folder;  // created if it does not exist
  // Names the source and the form of the output. If a process that wrote the same was interrupted,
  // its complete shards are kept. Empty: nothing is kept.
  std::string work = {};
  uint64_t max_shard_bytes = kMaxShardBytes;
  // Called when the weights have their names, before the write counts as done; may be empty. An
  // interrupted process's successor calls it again.
  std::function<void()> on_published = {};
  // Called for each shard that is kept, with the bytes of its tensors; may be empty.
  std::function<void(uint64_t bytes)> on_kept = {};
};

// Writes all bytes of a tensor into the file, in pieces of any size.
using WriteTensor = std::function<void(size_t index, NewSafetensorsFile& file)>;

// Calls write(index, file) once for each of `tensors`, in order, except for those in shards that
// are kept. All shards are written under temporary names and renamed when all are on the disk; then
// weight files of earlier writes that are not part of these are removed. One process at a time:
// throws kBadInput if another one writes there. Throws kIo, with the bytes that are needed, if the
// disk is too small or becomes full; complete shards of a `work` are left for the next process.
void WriteWeights(const WeightOutput& output, const std::vector<TensorHeader>& tensors,
                  const WriteTensor& write);

// Returns whether a process that wrote `work` into the folder was interrupted.
bool IsInterrupted(const WeightOutput& output);

// Calls write(path) with a temporary path, and renames the file that it makes to `name`. kIo.
void ReplaceFile(const std::string& folder, const std::string& name,
                 const std::function<void(const std::string& path)>& write);

}  // namespace dslaunch

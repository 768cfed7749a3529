// Copies a checkpoint of any program into a checkpoint of dslaunch.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trainer/checkpoint/checkpoint_folder.h"

namespace dslaunch {

struct CopyOptions {
  std::string work;    // identifies the source; an interrupted copy of the same work continues
  bool force = false;  // whether to replace a checkpoint with the same tag
  // Called with a number of bytes: the first for bytes that are written, the second for bytes that
  // an interrupted copy had written. May be empty.
  std::function<void(uint64_t bytes)> on_written = {};
  std::function<void(uint64_t bytes)> on_kept = {};
};

// Returns the bytes of all tensors.
uint64_t TensorBytesOf(const Checkpoint& checkpoint);

// Copies weights and optimizer state, in blocks, into a checkpoint step_N in `folder`, a folder of
// --checkpoint_dir, which is created if it does not exist, and makes it the latest one. Takes the
// folder's lease. The copy is a run of its own with the source's position. Returns its tag. Throws
// kUsage if the tag exists already; kIo, with the bytes that are needed, if the disk is too small;
// the errors of CheckpointFolder and StoredTensors.
std::string CopyCheckpoint(const Checkpoint& source, const std::string& folder,
                           const CopyOptions& options);

}  // namespace dslaunch

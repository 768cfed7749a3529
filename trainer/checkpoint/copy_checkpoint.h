// Copies a checkpoint of any supported program into a checkpoint of dslaunch.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "trainer/checkpoint/checkpoint_folder.h"

namespace dslaunch {

struct CopyOptions {
  // Text that identifies the source. A copy with the same `work` continues an interrupted copy.
  std::string work;
  bool force = false;  // true to replace a checkpoint with the same tag
  // Called with the number of bytes that were written just now. May be null.
  std::function<void(uint64_t bytes)> on_written = {};
  // Called with the number of bytes that an interrupted copy had already written. May be null.
  std::function<void(uint64_t bytes)> on_kept = {};
};

// Returns the number of bytes of all tensors.
uint64_t TensorBytesOf(const Checkpoint& checkpoint);

// Copies weights and optimizer state, in blocks, into a checkpoint step_N in `folder`, and makes
// that checkpoint the latest. Returns its tag. `folder` is a folder for --checkpoint_dir, which is
// created if it does not exist and whose lease is taken. The copy belongs to a new run with the
// source's position. Throws kUsage if the tag already exists (without `force`); kIo, naming the
// needed bytes, if the disk is too small; and the errors of CheckpointFolder and StoredTensors.
std::string CopyCheckpoint(const Checkpoint& source, const std::string& folder,
                           const CopyOptions& options);

}  // namespace dslaunch

// Captures the state of an engine for a checkpoint, and restores it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dslaunch/engine.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_writer.h"

namespace dslaunch {

// Returns this rank's content of a checkpoint: weights, optimizer state and the state of the
// default CPU generator. The manifest has all fields that the engine can set. The tensors are not
// copies. `savers` are the ranks that write: all ranks, or a group that holds the whole state. If
// `adapters_only`, the result has no tensors of the model except the adapters.
CheckpointContent CaptureState(const EngineCore& engine, const ProcessGroup& savers,
                               bool adapters_only = false);

// A rank's part of an engine's state, for a copy that only the same rank of the same layout reads.
// Tensors that all ranks of ranks().data() hold are divided among them, as in CaptureState. The
// tensors are not copies. CaptureCopy of a later engine returns the same tensors in the same order.
struct StateCopy {
  // Manifest with the fields that the engine can set, without files, tensors and serial.
  Manifest manifest;
  // Tensors that only updates change, not forward and backward passes.
  std::vector<TensorPart> settled;
  std::vector<TensorPart> others;  // all other tensors, and the state of the default CPU generator
};
StateCopy CaptureCopy(const EngineCore& engine, bool adapters_only);

// Fills a tensor from the copy. Called in order for the tensors of `settled`, then for those of
// `others`.
using FillTensor = std::function<void(const TensorPart& part)>;

// Restores the engine to the state of the copy with this manifest, bit for bit. Collective.
void RestoreCopy(const Manifest& manifest, bool adapters_only, const FillTensor& fill,
                 EngineCore& engine);

struct RestoreOptions {
  bool strict = true;  // true to require that the model and the checkpoint have the same tensors
  bool weights_only = false;  // true to skip the optimizer, the schedule and the generator
  bool optimizer = true;      // true to restore the optimizer's state and its count of updates
  bool schedule = true;       // true to restore the schedule's count of updates
  // True if the checkpoint has only adapters; other tensors are then unchanged.
  bool adapters_only = false;
};

// Sorted names of tensors that were skipped because only the model or only the checkpoint has them.
struct SkippedTensors {
  // Names of tensors that only the model has, and that are unchanged.
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;  // names of tensors that only the checkpoint has
};

// Restores the engine to the checkpoint's state. The generator is restored only if the number of
// ranks is the same. Throws kBadInput on every rank, naming the tensor, if the tensors of the
// engine and the checkpoint do not match; the state is then partly restored. Collective.
SkippedTensors RestoreState(const Checkpoint& checkpoint, const RestoreOptions& options,
                            EngineCore& engine);

}  // namespace dslaunch

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
// copies. `savers` are the ranks that write: all ranks, or a group that holds the whole state.
// `adapters_only` omits all tensors of the model but the adapters.
CheckpointContent CaptureState(const EngineCore& engine, const ProcessGroup& savers,
                               bool adapters_only = false);

// A rank's part of an engine's state, for a copy that only the same rank of the same layout reads.
// Tensors that all ranks of ranks().data() hold are divided among them, as in CaptureState. The
// tensors are not copies. CaptureCopy of a later engine returns the same tensors in the same order.
struct StateCopy {
  Manifest manifest;                // fields that the engine can set; no files, tensors or serial
  std::vector<TensorPart> settled;  // tensors that only updates change, not passes
  std::vector<TensorPart> others;   // all other tensors, and the state of the default CPU generator
};
StateCopy CaptureCopy(const EngineCore& engine, bool adapters_only);

// Fills a tensor from the copy. Called for the tensors of `settled`, then of `others`, in order.
using FillTensor = std::function<void(const TensorPart& part)>;

// Restores the engine to the state of the copy with this manifest, bit for bit. Collective.
void RestoreCopy(const Manifest& manifest, bool adapters_only, const FillTensor& fill,
                 EngineCore& engine);

struct RestoreOptions {
  bool strict = true;          // requires the model and the checkpoint to have the same tensors
  bool weights_only = false;   // skips optimizer, schedule and generator
  bool optimizer = true;       // restores the optimizer's state and its count of updates
  bool schedule = true;        // restores the schedule's count of updates
  bool adapters_only = false;  // the checkpoint has only adapters; other tensors do not change
};

// Names of tensors that were skipped because only the model or only the checkpoint has them,
// sorted.
struct SkippedTensors {
  std::vector<std::string> missing;     // only in the model; these tensors do not change
  std::vector<std::string> unexpected;  // only in the checkpoint
};

// Restores the engine to the checkpoint's state. The generator is restored only if the number of
// ranks is the same. Throws the errors of LoadState. Collective.
SkippedTensors RestoreState(const Checkpoint& checkpoint, const RestoreOptions& options,
                            EngineCore& engine);

}  // namespace dslaunch

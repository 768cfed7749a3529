// The whole state of an engine, captured for a checkpoint and restored from one.
#pragma once

#include <string>
#include <vector>

#include "dslaunch/engine.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_writer.h"

namespace dslaunch {

// Returns what this rank writes: weights, optimizer state and the state of the default CPU
// generator. The manifest has all that the engine knows. The tensors are not copies. `savers` are
// the ranks that write: all, or a group that holds the whole state. With `adapters_only` the
// model's other tensors, which are frozen, are left out.
CheckpointContent CaptureState(const EngineCore& engine, const ProcessGroup& savers,
                               bool adapters_only = false);

struct RestoreOptions {
  bool strict = true;          // the model has exactly the tensors of the checkpoint
  bool weights_only = false;   // skips optimizer, schedule and generator
  bool optimizer = true;       // the optimizer's state of each parameter, and its count of updates
  bool schedule = true;        // the learning rate's count of updates
  bool adapters_only = false;  // captured so; the model's other tensors stay
};

// Tensors that were skipped because only one side has them, sorted by name.
struct SkippedTensors {
  std::vector<std::string> missing;     // tensors only in the model, which do not change
  std::vector<std::string> unexpected;  // tensors only in the checkpoint
};

// Collective. Brings the engine to the checkpoint's state. The generator is restored only if the
// number of ranks is the same. Throws the errors of LoadState.
SkippedTensors RestoreState(const Checkpoint& checkpoint, const RestoreOptions& options,
                            EngineCore& engine);

}  // namespace dslaunch

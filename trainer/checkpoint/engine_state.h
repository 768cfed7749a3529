// The whole state of an engine, captured for a checkpoint and restored from one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dslaunch/engine.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_writer.h"

namespace dslaunch {

// Returns what this rank writes: weights, optimizer state and the state of the default CPU
// generator. The manifest has all facts that the engine knows. The tensors are not copies. `savers`
// are the ranks that write: all, or a group that holds the whole state. With `adapters_only` the
// model's other tensors, which are frozen, are left out.
CheckpointContent CaptureState(const EngineCore& engine, const ProcessGroup& savers,
                               bool adapters_only = false);

// One rank's part of an engine's state, for a copy that only the same rank of the same layout
// reads. Tensors that all of ranks.data() hold are divided among them, as in CaptureState. The
// tensors are not copies: CaptureCopy of a later engine has the same ones in the same order.
struct StateCopy {
  Manifest manifest;  // all facts that the engine knows; without files, tensors and serial
  std::vector<TensorPart> settled;  // changed by updates only, not by passes
  std::vector<TensorPart> others;   // the rest, and the state of the default CPU generator
};
StateCopy CaptureCopy(const EngineCore& engine, bool adapters_only);

// Fills a tensor of a copy. The calls are in the order of `settled`, then `others`.
using FillTensor = std::function<void(const TensorPart& part)>;

// Collective. Brings the engine to the state of the copy with this manifest, bit for bit.
void RestoreCopy(const Manifest& manifest, bool adapters_only, const FillTensor& fill,
                 EngineCore& engine);

struct RestoreOptions {
  bool strict = true;          // the model has exactly the tensors of the checkpoint
  bool weights_only = false;   // skips optimizer, schedule and generator
  bool optimizer = true;       // the optimizer's state of each parameter, and its count of updates
  bool schedule = true;        // the learning rate's count of updates
  bool adapters_only = false;  // the checkpoint has adapters only; other tensors of the model stay
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

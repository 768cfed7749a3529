// The whole state of an engine, for a checkpoint and from one.
#pragma once

#include <string>
#include <vector>

#include "dslaunch/engine.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_writer.h"

namespace dslaunch {

// What this rank writes: weights, optimizer and the state of the default CPU generator. The
// manifest has all that the engine knows. The tensors are not copies. `savers` are the ranks that
// write: all, or those that hold the whole state.
CheckpointContent CaptureState(const EngineCore& engine, const ProcessGroup& savers);

struct RestoreOptions {
  bool strict = true;         // the model has exactly the tensors of the checkpoint
  bool weights_only = false;  // without the following
  bool optimizer = true;      // what it keeps of each parameter, and how many updates it has made
  bool schedule = true;       // how many updates the learning rate counts
};

// What was ignored because only one side has it, in the order of the names.
struct PassedOver {
  std::vector<std::string> missing;     // of the model; they stay as they are
  std::vector<std::string> unexpected;  // of the checkpoint
};

// Collective. Brings the engine to the checkpoint's state. The generator is restored if the number
// of ranks is the same, and unchanged otherwise. Throws as LoadState does.
PassedOver RestoreState(const Checkpoint& checkpoint, const RestoreOptions& options,
                        EngineCore& engine);

}  // namespace dslaunch

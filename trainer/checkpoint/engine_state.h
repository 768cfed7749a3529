// An engine's whole state on its way into a checkpoint and back, for whoever saves one.
#pragma once

#include "dslaunch/engine.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_writer.h"

namespace dslaunch {

// What this rank writes: weights, optimizer and the state of the default CPU generator; and of the
// manifest all that the engine knows. The tensors are the engine's own.
CheckpointContent CaptureState(const EngineCore& engine);

// Collective. Throws on every rank where the ranks chose differently in the folder at `path`, or
// chose to refuse.
void AgreeOnChoice(const ResumeDecision& own, const std::string& path, const ProcessGroup& group);

struct RestoreOptions {
  bool weights_only = false;  // and nothing of the following
  bool optimizer = true;      // what it keeps of each parameter, and how many updates it has made
  bool schedule = true;       // how many updates the learning rate counts
};

// Collective. Brings the engine to the checkpoint's state. The generator follows where as many
// ranks as now have saved, and stays as it is otherwise. Throws as LoadState does.
void RestoreState(const Checkpoint& checkpoint, const RestoreOptions& options, EngineCore& engine);

}  // namespace dslaunch

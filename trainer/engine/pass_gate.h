// Tracks the open pass of an engine and the position in the step. Throws for calls in the wrong
// order.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "dslaunch/engine.h"
#include "trainer/comm/exchange_watch.h"
#include "trainer/device/time_spans.h"
#include "trainer/parallel/model_states.h"

namespace dslaunch {

// Runs the passes of an engine on the engine's other components. Not thread-safe.
class PassGate {
 public:
  PassGate(EngineParts& engine, Passes passes) : engine_(engine), passes_(passes) {}

  // The functions up to EndNoSync are for Passes::kMicroBatches. EngineCore, whose functions have
  // the same names, and NoSyncScope call them.
  void BeforeForward();
  void AfterForward();
  void AbandonForward();
  void Backward(const at::Tensor& loss, const BackwardOptions& options);
  void ZeroGrad();
  bool Step();
  void BeginNoSync();
  void EndNoSync() { --no_sync_scopes_; }

  // The next three functions are for Passes::kBatches. EngineBatch calls them.
  void BeginBatch(bool trains);
  at::Tensor Root(const at::Tensor& loss);
  void StepBatch();

  // Counts a step that replayed a recorded step.
  void CountReplay();
  // Continues the run after `steps` steps. Drops a partly accumulated step. Collective like
  // ModelStates::GiveUp.
  void Resume(int64_t steps);

  // Returns whether a forward pass that begins now is part of training.
  bool Trains() const;
  // Returns whether the next Step completes an optimizer step.
  bool AtBoundary() const;
  // Returns whether the gradients of a step are complete and not used yet.
  bool HasAllGradients() const { return backward_done_ && AtBoundary(); }
  int64_t micro_steps() const { return micro_steps_; }
  // Returns the compute time of the current step.
  const TimeSpans& compute() const { return compute_; }

 private:
  int64_t accumulation_steps() const;
  c10::Device timed() const;
  void PrepareToTrain();
  void CheckLoss(const at::Tensor& loss) const;
  void CheckBackward(const at::Tensor& loss) const;
  at::Tensor ScaledLoss(const at::Tensor& loss, int64_t parts);
  void MakeStep();
  void StartStepOver();
  void GiveUp();
  void OrStartStepOver(const std::function<void()>& action);

  EngineParts& engine_;
  const Passes passes_;
  std::optional<ExchangeWatch> watch_;  // watch for exchanges; set during a training forward pass
  bool in_pass_ = false;       // true from BeforeForward of a training pass to its Backward
  int64_t nested_passes_ = 0;  // number of open inference passes within the training pass
  bool forward_done_ = false;
  bool backward_done_ = false;
  int no_sync_scopes_ = 0;
  bool unsynced_ = false;        // true if the last training pass began in a NoSyncScope
  bool graph_retained_ = false;  // true if the last Backward had retain_graph
  bool must_end_ = false;        // true if other ranks wait for a backward pass that threw
  bool gives_up_ = false;        // true if GiveUp() must precede the next training pass
  int64_t micro_steps_ = 0;
  std::vector<at::Tensor> losses_;  // losses of this step's micro-batches
  TimeSpans compute_;
};

}  // namespace dslaunch

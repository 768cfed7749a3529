// The passes of an engine: which one is open, which micro-batch of the step is next, and the errors
// of calls that do not fit.
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

// Works on the other parts of its engine. Called on one thread.
class PassGate {
 public:
  PassGate(EngineParts& engine, Passes passes) : engine_(engine), passes_(passes) {}

  // With Passes::kMicroBatches. See EngineCore and NoSyncScope.
  void BeforeForward();
  void AfterForward();
  void AbandonForward();
  void Backward(const at::Tensor& loss, const BackwardOptions& options);
  void ZeroGrad();
  bool Step();
  void BeginNoSync();
  void EndNoSync() { --no_sync_scopes_; }

  // With Passes::kBatches. See EngineBatch.
  void BeginBatch(bool trains);
  at::Tensor Root(const at::Tensor& loss);
  void StepBatch();

  // Counts a step that replayed a recorded one.
  void CountReplay();
  // Continues after `steps` steps. Drops a step that is partly accumulated. Collective like
  // ModelStates::GiveUp.
  void Resume(int64_t steps);

  // Whether a forward pass that begins now is part of training.
  bool Trains() const;
  // Whether the next Step makes an optimizer step.
  bool AtBoundary() const;
  // Whether the gradients of a step are complete, and not yet used.
  bool HasAllGradients() const { return backward_done_ && AtBoundary(); }
  int64_t micro_steps() const { return micro_steps_; }
  const TimeSpans& compute() const { return compute_; }  // computing time of this step

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
  std::optional<ExchangeWatch> watch_;  // watch during a training forward pass
  bool in_pass_ = false;  // from the start of a training pass's forward to the end of its Backward
  int64_t nested_passes_ = 0;  // inference passes within the training pass
  bool forward_done_ = false;
  bool backward_done_ = false;
  int no_sync_scopes_ = 0;
  bool unsynced_ = false;        // the last training pass began in a NoSyncScope
  bool graph_retained_ = false;  // the last Backward announced another one
  bool must_end_ = false;        // peers wait for exchanges of a backward pass that has thrown
  bool gives_up_ = false;        // the next training pass first drops the gradients of this step
  int64_t micro_steps_ = 0;
  std::vector<at::Tensor> losses_;  // one for each micro-batch of this step
  TimeSpans compute_;
};

}  // namespace dslaunch

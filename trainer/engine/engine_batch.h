// Runs the steps of an engine whose caller orders the forward and backward passes itself, like a
// pipeline.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "dslaunch/engine.h"
#include "trainer/comm/exchange_watch.h"

namespace dslaunch {

// Runs batches of an engine. The calls of a batch are Begin; forward passes and backward passes in
// any order, each of the latter between BeforeBackward and AfterBackward; End; and Step if the
// batch trains. All ranks that hold the same parameters must make the same calls. Not thread-safe.
class EngineBatch {
 public:
  // Runs batches of `core`, the engine of a pipeline stage. The engine must outlive this object,
  // but `core` may be moved.
  explicit EngineBatch(EngineCore& core);

  // Begins a batch, after which reads may gather parameters. If `trains`, backward passes follow.
  // Drops the gradients of a previous batch that failed.
  void Begin(bool trains);

  // Returns a watch for a pass of a batch that trains: a forward pass if `forward`, otherwise a
  // backward pass. During the watch's lifetime, an exchange by this thread throws TrainError
  // kBadInput if it shows that the ranks hold different parts of the model without having declared
  // them (WholeModelGuard).
  ExchangeWatch Watch(bool forward) const;

  // Returns the root of a micro-batch's backward pass, on the stage that computes the loss: the
  // loss in fp32 or wider, times loss scale / accumulation_steps. Keeps the loss for messages.
  at::Tensor Root(const at::Tensor& loss);

  // Begins a backward pass. If `last`, gradients are complete after this backward pass, so the
  // replicas exchange them while it runs.
  void BeforeBackward(bool last);
  void AfterBackward();

  // Ends the passes of the batch. Exchanges the gradients that were not exchanged yet, and releases
  // gathered parameters.
  void End();

  // Adds up the gradients of tied parameters, clips them by the norm over all stages, updates the
  // weights and clears the gradients. Throws TrainError kBadInput if a parameter got no gradient,
  // or if gradients are not finite and the configuration does not skip such steps. Collective over
  // all ranks of the job.
  void Step();

 private:
  EngineParts& parts_;
};

}  // namespace dslaunch

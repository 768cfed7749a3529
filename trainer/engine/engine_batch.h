// The steps of an engine whose caller runs the forward and backward passes in its own order, as a
// pipeline does.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "dslaunch/engine.h"
#include "trainer/comm/exchange_watch.h"

namespace dslaunch {

// Calls of a batch: Begin; forward passes and, each between BeforeBackward and AfterBackward,
// backward passes, in any order; End; and Step if the batch trains. All ranks that hold the same
// parameters must make the same calls. One thread.
class EngineBatch {
 public:
  // `core` is an engine of one pipeline stage. It must outlive this object, but may be moved.
  explicit EngineBatch(EngineCore& core);

  // From here on parameters may be gathered when they are read. `trains`: backward passes follow.
  // Drops the gradients of a batch that has failed.
  void Begin(bool trains);

  // Keep the result alive during a pass of a batch that trains: exchanges by this thread then throw
  // as described at WholeModelGuard::Watch.
  ExchangeWatch Watch(bool forward) const;

  // Returns the root of the backward pass of a micro-batch, on the stage that computes its loss:
  // the loss, in fp32 or wider, times loss scale / accumulation_steps. Keeps the loss for messages.
  at::Tensor Root(const at::Tensor& loss);

  // `last`: only this pass still adds to gradients, so they are exchanged between the replicas
  // while it runs.
  void BeforeBackward(bool last);
  void AfterBackward();

  // Ends the last pass: exchanges the gradients that were not exchanged yet, and releases gathered
  // parameters.
  void End();

  // Adds up the gradients of tied parameters, clips by the norm over all stages, updates the
  // weights and clears the gradients. Throws like EngineCore::Step. Collective over all ranks of
  // the job.
  void Step();

 private:
  EngineParts& parts_;
};

}  // namespace dslaunch

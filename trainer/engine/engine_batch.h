// For whoever runs the forward and backward passes of a step in an order of his own, as a pipeline
// does.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "dslaunch/engine.h"
#include "trainer/comm/exchange_watch.h"

namespace dslaunch {

// The calls of a batch: Begin, any forward passes and, each between BeforeBackward and
// AfterBackward, backward passes; End; and where it trains, Step. All ranks that hold the same
// parameters must make the same. One thread.
class EngineBatch {
 public:
  explicit EngineBatch(EngineCore& core) : core_(core) {}

  // From here on parameters may be gathered as they are read. `trains`: backward passes follow.
  // Gradients of a batch that has thrown are dropped.
  void Begin(bool trains);

  // While the result lives, exchanges by this thread that only parts of a model need throw, as
  // WholeModelGuard has it. Around the passes of a batch that trains.
  ExchangeWatch Watch(bool forward) const;

  // What the backward pass of a micro-batch starts from where its loss is: the loss, in fp32 at
  // least, times loss scale / accumulation_steps. Keeps it for messages.
  at::Tensor Root(const at::Tensor& loss);

  // `last`: only this pass still adds to gradients, which travel between the replicas as they come,
  // while it goes on.
  void BeforeBackward(bool last);
  void AfterBackward();

  // After the last pass: gradients that have not travelled do so now. Nothing is gathered any more.
  void End();

  // Adds up the gradients of tied parameters, clips by the norm over all stages, updates, and
  // clears. As EngineCore::Step at the end of a step, with its errors, on all ranks of the job.
  void Step();

 private:
  EngineCore& core_;
};

}  // namespace dslaunch

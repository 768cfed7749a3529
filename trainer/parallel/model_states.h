// A rank's part of the model's states (parameters, gradients and optimizer state: ZeRO paper,
// section 3), and how the ranks' parts become one model. The engine uses ZeRO only through this
// interface.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "dslaunch/engine.h"
#include "dslaunch/tensor_part.h"
#include "trainer/optim/optimizer.h"

namespace dslaunch {

// The kind of a pass, from Begin to End.
enum class Pass {
  kInference,   // no backward pass
  kAccumulate,  // gradients are added to earlier ones of this step
  kSync,        // like kAccumulate, but End reduces gradients over all ranks
};

// How Begin and End are used: with Passes::kMicroBatches around one forward and one backward pass,
// which is `last` with kSync; with Passes::kBatches around any number of both, none of which need
// be `last`.
//
// Calls of a pass: Begin; forward passes and, each between BeforeBackward and AfterBackward,
// backward passes; End. A Begin ends a forward pass that is still open; a training pass whose
// backward pass has begun and not ended needs GiveUp first. With Passes::kBatches gradients may
// also arrive outside of backward passes, by the parameters' post-accumulate hooks. All ranks that
// hold the same parameters must make the same calls. One thread.
class ModelStates {
 public:
  virtual ~ModelStates() = default;

  virtual void Begin(Pass pass) = 0;
  // `last`, with kSync: only this backward pass still adds to gradients. They are sent while it
  // runs; if no backward pass is the last, in End.
  virtual void BeforeBackward(bool last) = 0;
  virtual void AfterBackward() = 0;
  virtual void End() = 0;  // waits for what is being sent

  // Fixed for the lifetime of this. The parts of all ranks together hold every parameter: if
  // sharded() each element once, else all of them on every rank.
  const std::vector<WeightPart>& parts() const { return parts_; }
  virtual bool sharded() const = 0;
  // Makes the optimizer's state of a part; null: the state lies where the part does.
  virtual ZerosBeside StateZeros() const { return nullptr; }

  // After kSync: the gradient of each of parts(), in the dtype in which gradients accumulate,
  // averaged or added up over the ranks, by the configuration. They may be changed in place
  // until Clear. Undefined for a parameter that got none on this rank.
  virtual std::vector<at::Tensor> Gradients() = 0;
  // Makes the model's parameters follow the weights of parts(). Collective if they are sharded.
  virtual void CopyMasterToModel() = 0;
  // Called when parts [begin, end) have their weights of this step, in the order of the parts. May
  // begin what is not collective of the CopyMasterToModel that follows.
  virtual void Updated(size_t /*begin*/, size_t /*end*/) {}
  virtual void Clear() = 0;  // the step is over, on all ranks

  // Drops the gradients of this step so far. An open pass stays open. Precondition: no backward
  // pass is running.
  virtual void DropGradients() = 0;
  // Ends the pass that is open, in the middle of a backward pass too, and drops the gradients of
  // this step. If some of them have been sent, NaN is sent in place of the rest: so no rank waits,
  // and one that has not given up sees that the sums are not to be used. Collective then, and at
  // stage 3; call it where all ranks do (before the next training pass).
  virtual void GiveUp() = 0;

  // See GatheredParameters.
  virtual void Unshard(const std::vector<at::Tensor>& parameters) = 0;
  virtual void Reshard(const std::vector<at::Tensor>& parameters,
                       std::optional<int> modifier_rank) = 0;

  // Bytes of live tensors, without the optimizer's state and the model's buffers.
  virtual MemoryUse memory() const = 0;
  virtual int64_t live_bucket_bytes() const = 0;  // MemoryUse::buckets at this moment

  // Parameters that are not trained, as this rank holds them. With the weights of parts() these are
  // the whole model but for its buffers.
  virtual std::vector<TensorPart> Frozen() const = 0;

 protected:
  std::vector<WeightPart> parts_;
};

}  // namespace dslaunch

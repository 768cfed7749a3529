// Defines the interface to a rank's part of the model states (parameters, gradients and optimizer
// state: ZeRO paper, section 3). The engine uses ZeRO only through this interface.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "dslaunch/engine.h"
#include "dslaunch/tensor_part.h"
#include "trainer/optim/optimizer.h"

namespace dslaunch {

// The kind of a pass, which lasts from Begin to End.
enum class Pass {
  kInference,   // pass without a backward pass
  kAccumulate,  // training pass whose gradients are added to earlier gradients of this step
  kSync,        // training pass like kAccumulate, after which End reduces gradients over all ranks
};

// Holds a rank's part of the model states and combines the parts of all ranks. With
// Passes::kMicroBatches a pass has one forward and one backward pass, which is `last` with kSync.
// With Passes::kBatches it has any number of both, and no backward pass need be `last`.
//
// The calls of a pass are Begin; forward passes and backward passes, each of the latter between
// BeforeBackward and AfterBackward; End. Begin ends a forward pass that is still open. If a
// backward pass has begun but not ended, GiveUp must precede Begin. With Passes::kBatches gradients
// may also arrive outside of backward passes, by the parameters' post-accumulate hooks. All ranks
// that hold the same parameters must make the same calls. Not thread-safe.
class ModelStates {
 public:
  virtual ~ModelStates() = default;

  virtual void Begin(Pass pass) = 0;
  // Begins a backward pass. `last`, allowed only with kSync, means that gradients are complete
  // after this backward pass, so they are sent while it runs. If no backward pass is the last, End
  // sends the gradients.
  virtual void BeforeBackward(bool last) = 0;
  virtual void AfterBackward() = 0;
  virtual void End() = 0;  // waits until all gradients are sent

  // Returns the weights that this rank updates; they do not change during the lifetime of this
  // object. If sharded(), the ranks' parts together hold each element of every parameter once;
  // otherwise every rank holds all elements.
  const std::vector<WeightPart>& parts() const { return parts_; }
  virtual bool sharded() const = 0;
  // Returns the function that creates the optimizer state of a part; null if the state is stored on
  // the device of the part.
  virtual ZerosBeside StateZeros() const { return nullptr; }

  // Returns the gradient of each of parts() after kSync, in the accumulation dtype, averaged or
  // summed over the ranks as configured. The gradients may be changed in place until Clear. A
  // gradient is undefined if the parameter got none on this rank.
  virtual std::vector<at::Tensor> Gradients() = 0;
  // Copies the weights of parts() to the model's parameters. Collective if sharded().
  virtual void CopyMasterToModel() = 0;
  // Notifies this object that the weights of parts [begin, end) were updated in this step. Called
  // in the order of the parts. May already begin the work of the next CopyMasterToModel that is not
  // collective.
  virtual void Updated(size_t /*begin*/, size_t /*end*/) {}
  virtual void Clear() = 0;  // ends the step; called on all ranks

  // Drops the gradients of this step so far. Does not end an open pass. Precondition: no backward
  // pass is running.
  virtual void DropGradients() = 0;
  // Ends the open pass, even during a backward pass, and drops the gradients of this step. If some
  // gradients have been sent, NaN is sent in place of the remaining gradients. No rank then waits
  // for them, and ranks that have not given up detect the invalid sums. In this case, and at stage
  // 3, the call is collective: every rank calls it at the same point, before the next training
  // pass.
  virtual void GiveUp() = 0;

  // Makes `parameters` whole and writable on every rank, for GatheredParameters. Collective.
  virtual void Unshard(const std::vector<at::Tensor>& parameters) = 0;
  // Undoes Unshard. If `modifier_rank` is set, first copies that rank's values to all ranks and to
  // the master weights. Collective.
  virtual void Reshard(const std::vector<at::Tensor>& parameters,
                       std::optional<int> modifier_rank) = 0;

  // Returns the bytes of live tensors, without the optimizer's state and the model's buffers.
  virtual MemoryUse memory() const = 0;
  virtual int64_t live_bucket_bytes() const = 0;  // returns the current value of MemoryUse::buckets

  // Returns this rank's parts of the parameters that are not trained. Together with the weights of
  // parts() they are the whole model except its buffers.
  virtual std::vector<TensorPart> Frozen() const = 0;

 protected:
  std::vector<WeightPart> parts_;
};

}  // namespace dslaunch

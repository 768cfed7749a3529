// What a rank holds of the model's states (parameters, gradients and what the optimizer keeps: ZeRO
// paper, section 3), and how the ranks' parts become one step. The engine sees nothing of ZeRO but
// this.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "dslaunch/engine.h"
#include "dslaunch/named_tensor.h"
#include "dslaunch/process_group.h"
#include "dslaunch/tensor_part.h"
#include "trainer/config/engine_config.h"
#include "trainer/optim/optimizer.h"

namespace dslaunch {

// What a forward pass is for.
enum class Pass {
  kInference,   // no backward pass follows
  kAccumulate,  // gradients are to be added to those that are there
  kSync,        // as kAccumulate, and at the end of its backward pass they are all ranks' together
};

// Calls of one micro-batch: BeforeForward, the forward pass, AfterForward, and, but for kInference,
// the backward pass and AfterBackward. Every rank must pass the same. One thread.
class ModelStates {
 public:
  virtual ~ModelStates() = default;

  virtual void BeforeForward(Pass pass) = 0;
  virtual void AfterForward(Pass pass) = 0;
  virtual void AfterBackward() = 0;

  // Fixed for the life of this. Together the ranks' parts hold every parameter; where they are
  // sharded each element once, else all of them on every rank.
  virtual const std::vector<WeightPart>& parts() const = 0;
  virtual bool sharded() const = 0;

  // After the backward pass of kSync: the gradient of each of parts(), in the dtype that gradients
  // accumulate in, averaged or added up over the ranks as the configuration says. They may be
  // changed in place until Clear. Undefined for a parameter that got none on this rank.
  virtual std::vector<at::Tensor> Gradients() = 0;
  // Makes the model's parameters follow the weights of parts(). Collective where they are sharded.
  virtual void Publish() = 0;
  virtual void Clear() = 0;  // the step is over, on all ranks

  // What GatheredParameters does.
  virtual void Gather(const std::vector<at::Tensor>& parameters) = 0;
  virtual void Release(const std::vector<at::Tensor>& parameters,
                       std::optional<int> modifier_rank) = 0;

  // Of live tensors, without the optimizer's state and the model's buffers.
  virtual MemoryUse memory() const = 0;
  // Parameters that are not trained, as this rank holds them. With the weights of parts() these are
  // the whole model but for its buffers.
  virtual std::vector<TensorPart> Frozen() const = 0;
};

// Casts the parameters and buffers of `module` as the configuration says, and gives those that
// `deferred` has recorded their values; the others become rank 0's on all ranks. Parameters of
// parts() are counted among those that are trained, in the module's order. Throws TrainError on
// every rank where the ranks' models differ, or where nothing is trained.
std::unique_ptr<ModelStates> MakeModelStates(const EngineConfig& config, torch::nn::Module& module,
                                             const ProcessGroup& group, InitRecording* deferred);

}  // namespace dslaunch

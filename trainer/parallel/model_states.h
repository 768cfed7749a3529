// What a rank holds of the model's states (parameters, gradients and what the optimizer keeps: ZeRO
// paper, section 3), and how the ranks' parts become one step. The engine sees nothing of ZeRO but
// this.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "dslaunch/engine.h"
#include "dslaunch/named_tensor.h"
#include "dslaunch/process_group.h"
#include "dslaunch/tensor_part.h"
#include "trainer/config/engine_config.h"
#include "trainer/mesh/mesh_groups.h"
#include "trainer/optim/optimizer.h"
#include "trainer/parallel/stale_training.h"

namespace dslaunch {

// What happens between Begin and End.
enum class Pass {
  kInference,   // no backward pass
  kAccumulate,  // gradients are to be added to those that are there
  kSync,        // as kAccumulate, and after End they are all ranks' together
};

// How Begin and End are used.
enum class Passes {
  kMicroBatches,  // around a forward pass and its backward pass, which is `last` in kSync
  kBatches,       // around any number of both in any order, none of which need be `last`
};

// Calls of a pass: Begin; forward passes and, each between BeforeBackward and AfterBackward,
// backward passes; End. A Begin ends a forward pass that is still open; a training pass whose
// backward pass has begun and not ended needs GiveUp first. With Passes::kBatches gradients may
// also come outside of backward passes, by the parameters' post-accumulate hooks. All ranks that
// hold the same parameters must make the same calls. One thread.
class ModelStates {
 public:
  virtual ~ModelStates() = default;

  virtual void Begin(Pass pass) = 0;
  // `last`, in kSync: only this backward pass still adds to gradients. They travel as they come,
  // while it goes on; without such a one, in End.
  virtual void BeforeBackward(bool last) = 0;
  virtual void AfterBackward() = 0;
  virtual void End() = 0;  // waits for what travels

  // Fixed for the life of this. Together the ranks' parts hold every parameter; where they are
  // sharded each element once, else all of them on every rank.
  virtual const std::vector<WeightPart>& parts() const = 0;
  virtual bool sharded() const = 0;
  // Makes the optimizer's state of a part; null: it is to lie where the part does.
  virtual ZerosBeside StateZeros() const { return nullptr; }

  // After kSync: the gradient of each of parts(), in the dtype that gradients
  // accumulate in, averaged or added up over the ranks as the configuration says. They may be
  // changed in place until Clear. Undefined for a parameter that got none on this rank.
  virtual std::vector<at::Tensor> Gradients() = 0;
  // Whether they are this rank's own in this step, because ranks exchange something else.
  virtual bool gradients_are_own() const { return false; }
  // From now on `reduces` is asked after the last backward pass of a step whether its gradients are
  // to be all ranks'. Of an optimizer that exchanges on its own.
  virtual void ReduceWhen(std::function<bool()> /*reduces*/) {}
  // Makes the model's parameters follow the weights of parts(). Collective where they are sharded.
  virtual void CopyMasterToModel() = 0;
  // The weights of these parts have their values of this step: what is not collective of
  // CopyMasterToModel, which comes later, may be done for them. In the order of the parts.
  virtual void Updated(size_t /*begin*/, size_t /*end*/) {}
  virtual void Clear() = 0;  // the step is over, on all ranks

  // Drops the gradients of this step so far. An open pass stays open. Not to be called in a
  // backward pass.
  virtual void DropGradients() = 0;
  // Ends the pass that is open, in the middle of a backward pass too, and drops the gradients of
  // this step. Where some of them have begun to travel, NaN travels in place of the rest: so no
  // rank waits, and one that has not given up sees that the sums are not to be used. Collective
  // then, and at stage 3; it is made where all ranks come to (the next training pass).
  virtual void GiveUp() = 0;

  // What GatheredParameters does.
  virtual void Unshard(const std::vector<at::Tensor>& parameters) = 0;
  virtual void Reshard(const std::vector<at::Tensor>& parameters,
                       std::optional<int> modifier_rank) = 0;

  // Of live tensors, without the optimizer's state and the model's buffers.
  virtual MemoryUse memory() const = 0;
  virtual int64_t live_bucket_bytes() const = 0;  // of its buckets, what there is now
  // What it keeps from step to step beside weights. SetSteps: so many steps are over. Restart: as
  // at the start, from rank 0's weights. Collective.
  virtual std::vector<RankTensor> RankTensors() const { return {}; }
  virtual void SetSteps(int64_t /*steps*/) {}
  virtual void Restart() {}

  // Where servers update as gradients come (parallel.staleness); null: they do not. Gradients() are
  // then this rank's own, of all trained parameters, and go to the servers by PushGradients;
  // without any, the step is made without an update. A server makes updates by `update`, of
  // parts(), with the step of the rank that sent the gradients, on threads of its own, but none
  // while WithoutUpdates runs its action, nor once it is told a null `update`.
  virtual StaleTraining* stale_training() { return nullptr; }
  using Update = std::function<void(std::vector<at::Tensor> gradients, int64_t step)>;
  virtual void UpdateBy(Update /*update*/) {}
  virtual void PushGradients(const std::vector<at::Tensor>& /*gradients*/) {}
  virtual void WithoutUpdates(const std::function<void()>& action) { action(); }

  // Parameters that are not trained, as this rank holds them. With the weights of parts() these are
  // the whole model but for its buffers.
  virtual std::vector<TensorPart> Frozen() const = 0;
};

// Moves the parameters and buffers of `module` to the ranks' device, casts them as the
// configuration says, and gives those that `deferred` has recorded their values; the others become
// rank 0's on all of ranks.data(). Parameters of parts() are counted among those that are
// trained, in the module's order. Those of ranks.tied() are cut into the same parts on all stages.
// Throws TrainError on all of ranks.data() where their models differ; with Passes::kMicroBatches
// also where nothing is trained.
std::unique_ptr<ModelStates> MakeModelStates(const EngineConfig& config, torch::nn::Module& module,
                                             const MeshGroups& ranks, Passes passes,
                                             InitRecording* deferred);

}  // namespace dslaunch

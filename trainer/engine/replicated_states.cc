#include "trainer/engine/replicated_states.h"

#include "trainer/engine/module_tensors.h"
#include "trainer/engine/sync_options.h"

namespace dslaunch {

ReplicatedStates::ReplicatedStates(const EngineConfig& config, torch::nn::Module& module,
                                   const ProcessGroup& group)
    : module_(module),
      group_(group),
      grad_sync_(
          MakeGradSync(group, TrainableParameters(module), module.buffers(), SyncOptions(config))),
      masters_(TrainableParameters(module), config.precision.master_weights) {
  for (size_t i = 0; i < masters_.weights().size(); ++i) {
    parts_.push_back({i, masters_.weights()[i].tensor, 0});
  }
}

void ReplicatedStates::BeforeForward(Pass pass) {
  if (pass != Pass::kInference) grad_sync_->BeforeForward(pass == Pass::kSync);
}

void ReplicatedStates::AfterForward(Pass pass) {
  if (pass != Pass::kInference) grad_sync_->AfterForward(pass == Pass::kSync);
}

void ReplicatedStates::Release(const std::vector<at::Tensor>& parameters,
                               std::optional<int> modifier_rank) {
  if (!modifier_rank) return;
  const at::NoGradGuard no_grad;
  for (at::Tensor parameter : parameters) group_.Broadcast(parameter, *modifier_rank);
  masters_.CopyFromModel();
}

MemoryUse ReplicatedStates::memory() const {
  MemoryUse use;
  use.parameters = Bytes(Unique(module_.named_parameters()));
  use.gradients = grad_sync_->gradient_bytes();
  use.buckets = grad_sync_->bucket_bytes();
  use.optimizer = masters_.bytes();
  return use;
}

std::vector<TensorPart> ReplicatedStates::Frozen() const {
  std::vector<TensorPart> frozen;
  for (const NamedTensor& item : Unique(module_.named_parameters())) {
    if (item.tensor.requires_grad()) continue;
    frozen.push_back(
        {.name = item.name, .tensor = item.tensor, .shape = item.tensor.sizes().vec()});
  }
  return frozen;
}

}  // namespace dslaunch

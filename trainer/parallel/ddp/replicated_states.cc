#include "trainer/parallel/ddp/replicated_states.h"

#include <utility>

#include "trainer/parallel/module_tensors.h"

namespace dslaunch {

ReplicatedStates::ReplicatedStates(const EngineConfig& config, torch::nn::Module& module,
                                   const ProcessGroup& replicas,
                                   std::unique_ptr<GradSync> grad_sync)
    : module_(module),
      group_(replicas),
      grad_sync_(std::move(grad_sync)),
      masters_(TrainableParameters(module), config.precision.master_weights) {
  for (size_t i = 0; i < masters_.weights().size(); ++i) {
    const at::Tensor& weight = masters_.weights()[i].tensor;
    parts_.push_back({i, weight, Shard::Whole(weight.numel())});
  }
}

void ReplicatedStates::Begin(Pass pass) {
  trains_ = pass != Pass::kInference;
  if (trains_) grad_sync_->Begin(pass == Pass::kSync);
}

void ReplicatedStates::End() {
  if (trains_) grad_sync_->End();
}

void ReplicatedStates::GiveUp() {
  grad_sync_->GiveUp();
  trains_ = false;
}

void ReplicatedStates::Reshard(const std::vector<at::Tensor>& parameters,
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

std::vector<TensorPart> ReplicatedStates::Frozen() const { return FrozenParts(module_); }

}  // namespace dslaunch

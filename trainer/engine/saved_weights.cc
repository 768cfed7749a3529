#include <ATen/ATen.h>

#include <map>
#include <string>

#include "dslaunch/engine.h"
#include "trainer/engine/engine_impl.h"
#include "trainer/parallel/same_model.h"

namespace dslaunch {

SavedWeights::SavedWeights(EngineCore& core) : engine_(core.impl_) {
  const EngineCore::Impl& impl = *core.impl_;
  const MeshGroups& ranks = *impl.ranks_;
  StaleTraining* const stale = core.stale_training();
  const ProcessGroup& replicas = stale == nullptr ? ranks.data() : stale->group();
  if (replicas.world_size() == 1 && ranks.tied_buffers().empty()) return;
  const at::NoGradGuard no_grad;
  std::map<std::string, at::Tensor> by_name;
  for (const TensorPart& part : core.ModelState()) {
    if (!part.rank0_authoritative) continue;
    differ_.push_back(part.tensor);
    by_name.emplace(part.name, part.tensor);
  }
  if (replicas.rank() != 0 || !ranks.tied_buffers().empty()) {
    for (const at::Tensor& tensor : differ_) own_.push_back(tensor.clone());
  }
  BroadcastFromRank0(replicas, differ_);
  for (const TiedGroup& tied : ranks.tied_buffers()) {
    BroadcastFromRank0(*tied.group, {by_name.at(tied.name)});
  }
  impl.FollowApart();
}

SavedWeights::~SavedWeights() {
  const auto engine = engine_.lock();
  if (own_.empty() || !engine) return;
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < own_.size(); ++i) differ_[i].copy_(own_[i]);
  engine->FollowApart();
}

}  // namespace dslaunch

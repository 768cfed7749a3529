// Implements the scopes that programs open around an engine's passes and weights.
#include <ATen/ATen.h>

#include <exception>
#include <map>
#include <string>
#include <utility>

#include "dslaunch/engine.h"
#include "trainer/base/train_error.h"
#include "trainer/engine/engine_parts.h"
#include "trainer/parallel/same_model.h"
#include "trainer/parallel/stale_training.h"

namespace dslaunch {
namespace {

// Copies weights to the model if they may differ between ranks. Such weights are whole on each
// rank, so no exchange is needed.
void FollowWeights(const EngineParts& engine) {
  if (engine.step->weights_differ()) engine.step->states().CopyMasterToModel();
}

}  // namespace

NoSyncScope::NoSyncScope(EngineCore& core) : engine_(core.parts_) {
  core.parts_->passes.BeginNoSync();
}

NoSyncScope::~NoSyncScope() {
  if (const auto engine = engine_.lock()) engine->passes.EndNoSync();
}

GatheredParameters::GatheredParameters(EngineCore& core, std::vector<at::Tensor> parameters,
                                       std::optional<int> modifier_rank)
    : engine_(core.parts_), parameters_(std::move(parameters)), modifier_rank_(modifier_rank) {
  core.parts_->step->states().Unshard(parameters_);
}

GatheredParameters::~GatheredParameters() noexcept(false) {
  // If an exception is being thrown, the other ranks may never reach this destructor, so this rank
  // must not wait for them.
  if (std::uncaught_exceptions() > 0) return;
  if (const auto engine = engine_.lock()) {
    engine->step->states().Reshard(parameters_, modifier_rank_);
  } else if (modifier_rank_) {
    throw TrainError(ExitCode::kUsage,
                     "GatheredParameters was destroyed after its engine, so what rank " +
                         std::to_string(*modifier_rank_) +
                         " wrote is lost; destroy it before the engine");
  }
}

SavedWeights::SavedWeights(EngineCore& core) : engine_(core.parts_) {
  const MeshGroups& ranks = core.ranks();
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
  FollowWeights(*core.parts_);
}

SavedWeights::~SavedWeights() {
  const auto engine = engine_.lock();
  if (own_.empty() || !engine) return;
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < own_.size(); ++i) differ_[i].copy_(own_[i]);
  FollowWeights(*engine);
}

}  // namespace dslaunch

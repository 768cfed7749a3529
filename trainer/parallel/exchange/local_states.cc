#include "trainer/parallel/exchange/local_states.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "trainer/parallel/ddp/make_grad_sync.h"
#include "trainer/parallel/exchange/flat_mean.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/parallel/same_model.h"
#include "trainer/parallel/sync_options.h"

namespace dslaunch {

LocalStates::LocalStates(const EngineConfig& config, torch::nn::Module& module,
                         const MeshGroups& ranks, Passes passes)
    : module_(module),
      group_(ranks.data()),
      self_(group_.Subgroup({group_.rank()},
                            group_.NewKey("own_gradients") + std::to_string(group_.rank()))),
      options_(WholeModelSyncOptions(config, module, passes)),
      parameters_(TrainableParameters(module)),
      buffers_(module.buffers()),
      local_([&] {
        CheckSameModel(group_, parameters_, buffers_, /*may_be_empty=*/options_.batches);
        BroadcastFromRank0(group_, TensorsOf(parameters_));
        BroadcastFromRank0(group_, buffers_);
        return MakeGradSync(self_, parameters_, buffers_, OwnRankOptions(options_));
      }()),
      masters_(parameters_, config.precision.master_weights) {
  for (size_t i = 0; i < masters_.weights().size(); ++i) {
    parts_.push_back({i, masters_.weights()[i].tensor, 0});
  }
  const ParallelConfig& parallel = config.parallel;
  std::optional<at::ScalarType> dtype;
  if (config.communication.dtype) dtype = options_.communication_dtype;
  if (parallel.TrainsApart()) outer_.emplace(parallel, group_, masters_.weights(), dtype);
  if (parallel.mode == ParallelConfig::Mode::kPowerSgd) {
    power_sgd_.emplace(parallel, group_, parameters_, options_.accumulation_dtype);
  }
}

void LocalStates::Begin(Pass pass) {
  pass_ = pass;
  if (pass != Pass::kInference) local_->Begin(pass == Pass::kSync);
}

void LocalStates::End() {
  if (pass_ == Pass::kInference) return;
  local_->End();
  if (pass_ != Pass::kSync) return;
  gradients_ = local_->Gradients();
  own_ = outer_.has_value() || (reduces_ && !reduces_());
  const bool complete = std::ranges::all_of(
      gradients_, [](const at::Tensor& gradient) { return gradient.defined(); });
  if (own_ || !complete) return;  // the engine names the parameter
  if (power_sgd_) return power_sgd_->Reduce(gradients_, steps_ + 1);
  std::map<at::ScalarType, std::vector<at::Tensor>> by_dtype;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    by_dtype[MessageDtype(options_, parameters_[i].tensor.scalar_type())].push_back(gradients_[i]);
  }
  for (const auto& [dtype, gradients] : by_dtype) {
    AllReduceFlat(group_, gradients, dtype, ScaleOf(options_, group_.world_size()));
  }
}

void LocalStates::Clear() {
  local_->Clear();
  gradients_.clear();
  ++steps_;
  const bool exchanges = outer_ && outer_->IsDue(steps_);
  if (exchanges) {
    outer_->Exchange();
    masters_.CopyToModel();
  }
  if (options_.broadcast_buffers && (exchanges || !outer_)) BroadcastFromRank0(group_, buffers_);
}

void LocalStates::DropGradients() {
  local_->DropGradients();
  gradients_.clear();
}

void LocalStates::GiveUp() {
  local_->GiveUp();
  gradients_.clear();
  pass_ = Pass::kInference;
}

void LocalStates::Reshard(const std::vector<at::Tensor>& parameters,
                          std::optional<int> modifier_rank) {
  if (!modifier_rank) return;
  const at::NoGradGuard no_grad;
  for (at::Tensor parameter : parameters) group_.Broadcast(parameter, *modifier_rank);
  masters_.CopyFromModel();
}

MemoryUse LocalStates::memory() const {
  MemoryUse use;
  use.parameters = Bytes(Unique(module_.named_parameters()));
  use.gradients = local_->gradient_bytes();
  use.buckets = local_->bucket_bytes();
  use.optimizer = masters_.bytes();
  for (const RankTensor& item : RankTensors()) {
    use.optimizer += static_cast<int64_t>(item.tensor.nbytes());
  }
  return use;
}

std::vector<TensorPart> LocalStates::Frozen() const { return FrozenParts(module_); }

std::vector<RankTensor> LocalStates::RankTensors() const {
  if (outer_) return outer_->RankTensors();
  if (power_sgd_) return power_sgd_->RankTensors();
  return {};
}

void LocalStates::Restart() {
  if (outer_) outer_->Restart();
  if (power_sgd_) power_sgd_->Restart();
}

}  // namespace dslaunch

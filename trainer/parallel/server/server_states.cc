#include "trainer/parallel/server/server_states.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "trainer/parallel/master_weights.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/parallel/same_model.h"
#include "trainer/parallel/sync_options.h"
#include "trainer/shards/shards.h"

namespace dslaunch {
namespace {

GradSyncOptions OptionsFor(const EngineConfig& config, const torch::nn::Module& module,
                           const ProcessGroup& group, Passes passes) {
  GradSyncOptions options = WholeModelSyncOptions(config, module, passes);
  if (group.world_size() == 1) options.communication_dtype = options.accumulation_dtype;
  return options;
}

}  // namespace

ServerStates::ServerStates(const EngineConfig& config, torch::nn::Module& module,
                           const MeshGroups& ranks, Passes passes)
    : module_(module),
      group_(ranks.data()),
      servers_(static_cast<int>(config.parallel.servers)),
      options_(OptionsFor(config, module, group_, passes)),
      scale_(ScaleOf(options_, group_.world_size())),
      parameters_(TrainableParameters(module)),
      buffers_(module.buffers()),
      local_(group_, parameters_, buffers_, options_),
      has_gradient_(parameters_.size()) {
  const at::NoGradGuard no_grad;
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& parameter = parameters_[i].tensor;
    const at::ScalarType dtype = parameter.scalar_type();
    const at::ScalarType message = MessageDtype(options_, dtype);
    model_dtype_ = i == 0 ? dtype : at::promote_types(model_dtype_, dtype);
    message_dtype_ = i == 0 ? message : at::promote_types(message_dtype_, message);
    sizes.push_back(parameter.numel());
    elements_ += parameter.numel();
  }
  share_ = (elements_ + servers_ - 1) / servers_;
  if (group_.rank() >= servers_) return;
  const bool has_masters = config.precision.master_weights;
  weights_ = PartOf(FlatModel(), group_.rank())
                 .to(has_masters ? at::promote_types(model_dtype_, at::kFloat) : model_dtype_)
                 .clone();
  const int64_t begin = share_ * group_.rank();
  for (const auto& [i, shard, at] : PiecesInRange(sizes, begin, begin + weights_.numel())) {
    parts_.push_back({i, weights_.narrow(0, at, shard.elements()), shard});
  }
}

int64_t ServerStates::SizeOf(int server) const {
  return std::clamp<int64_t>(elements_ - share_ * server, 0, share_);
}

at::Tensor ServerStates::PartOf(const at::Tensor& flat, int server) const {
  return flat.narrow(0, std::min(elements_, share_ * server), SizeOf(server));
}

at::Tensor ServerStates::Empty(int64_t elements, at::ScalarType dtype) const {
  return at::empty({elements}, at::TensorOptions(group_.device()).dtype(dtype));
}

at::Tensor ServerStates::FlatModel() const {
  std::vector<at::Tensor> flat = {Empty(0, model_dtype_)};
  for (const NamedTensor& parameter : parameters_) {
    flat.push_back(parameter.tensor.detach().flatten().to(model_dtype_));
  }
  return at::cat(flat);
}

void ServerStates::Begin(Pass pass) {
  pass_ = pass;
  if (pass != Pass::kInference) local_.Begin(pass == Pass::kSync);
}

void ServerStates::End() {
  if (pass_ == Pass::kInference) return;
  local_.End();
  if (pass_ == Pass::kSync) Push();
}

void ServerStates::Push() {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> gradients = local_.Gradients();
  std::vector<at::Tensor> flat = {Empty(0, message_dtype_)};
  for (size_t i = 0; i < gradients.size(); ++i) {
    has_gradient_[i] = gradients[i].defined();
    flat.push_back(has_gradient_[i] ? gradients[i].flatten().to(message_dtype_)
                                    : Empty(parameters_[i].tensor.numel(), message_dtype_).zero_());
  }
  at::Tensor message = at::cat(flat);
  if (scale_.before != 1) message.mul_(scale_.before);
  for (int server = 0; server < servers_; ++server) {
    const at::Tensor own = PartOf(message, server);
    if (group_.rank() != server) {
      group_.Send(own, server);
      continue;
    }
    gradient_ =
        at::zeros({own.numel()}, at::promote_types(options_.accumulation_dtype, message_dtype_));
    at::Tensor received = at::empty_like(own);
    for (int worker = 0; worker < group_.world_size(); ++worker) {
      if (worker != server) group_.Recv(received, worker);
      gradient_.add_(worker == server ? own : received);
    }
    if (scale_.after != 1) gradient_.mul_(scale_.after);
  }
}

std::vector<at::Tensor> ServerStates::Gradients() {
  std::vector<at::Tensor> gradients;
  int64_t start = 0;
  for (const WeightPart& part : parts_) {
    const bool there = options_.ignore_unused || has_gradient_[part.parameter];
    gradients.push_back(there ? gradient_.narrow(0, start, part.weight.numel()) : at::Tensor());
    start += part.weight.numel();
  }
  return gradients;
}

void ServerStates::Pull() {
  const at::NoGradGuard no_grad;
  at::Tensor flat = Empty(elements_, model_dtype_);
  for (int server = 0; server < servers_; ++server) {
    at::Tensor part = PartOf(flat, server);
    if (group_.rank() != server) {
      group_.Recv(part, server);
      continue;
    }
    part.copy_(weights_);
    for (int worker = 0; worker < group_.world_size(); ++worker) {
      if (worker != server) group_.Send(part, worker);
    }
  }
  SetModel(flat);
}

void ServerStates::SetModel(const at::Tensor& flat) {
  int64_t start = 0;
  for (const NamedTensor& parameter : parameters_) {
    const at::Tensor& tensor = parameter.tensor;
    tensor.copy_(flat.narrow(0, start, tensor.numel()).view_as(tensor));
    start += tensor.numel();
  }
}

void ServerStates::Clear() {
  local_.Clear();
  gradient_.reset();
  if (options_.broadcast_buffers) BroadcastFromRank0(group_, buffers_);
}

void ServerStates::GiveUp() {
  local_.GiveUp();
  pass_ = Pass::kInference;
}

void ServerStates::Reshard(const std::vector<at::Tensor>& parameters,
                           std::optional<int> modifier_rank) {
  if (!modifier_rank) return;
  const at::NoGradGuard no_grad;
  for (at::Tensor parameter : parameters) group_.Broadcast(parameter, *modifier_rank);
  if (weights_.defined()) CopyChanges(PartOf(FlatModel(), group_.rank()), weights_);
}

MemoryUse ServerStates::memory() const {
  MemoryUse use;
  use.parameters = Bytes(Unique(module_.named_parameters()));
  use.gradients = local_.gradient_bytes();
  use.buckets = elements_ * static_cast<int64_t>(c10::elementSize(message_dtype_));
  if (weights_.defined()) use.optimizer = static_cast<int64_t>(weights_.nbytes());
  return use;
}

std::vector<TensorPart> ServerStates::Frozen() const { return FrozenParts(module_); }

}  // namespace dslaunch

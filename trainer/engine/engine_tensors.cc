// Implements EngineTensors: reads and writes this rank's parts, and whole tensors that are
// assembled from the parts of all ranks.
#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "dslaunch/engine.h"
#include "trainer/base/train_error.h"
#include "trainer/engine/engine_parts.h"
#include "trainer/parallel/module_tensors.h"
#include "trainer/parallel/whole_tensor.h"
#include "trainer/shards/shards.h"

namespace dslaunch {
namespace {

// Returns a description of `tensor`, which belongs to part number `part` of the weights.
TensorPart StatePart(const EngineParts& engine, const std::string& prefix, size_t part,
                     const at::Tensor& tensor) {
  const WeightPart& weight = engine.step->states().parts()[part];
  const NamedTensor& parameter = engine.step->parameters()[weight.parameter];
  TensorPart state = {.name = prefix + parameter.name,
                      .tensor = tensor,
                      .shape = parameter.tensor.sizes().vec(),
                      .shard = weight.shard,
                      .replicated = !engine.step->states().sharded(),
                      .rank0_authoritative = engine.step->weights_differ()};
  PlaceInWhole(*engine.ranks, parameter.name, state);
  return state;
}

std::vector<TensorPart> WeightParts(const EngineParts& engine, const std::string& prefix) {
  std::vector<TensorPart> state;
  const std::vector<WeightPart>& parts = engine.step->states().parts();
  for (size_t i = 0; i < parts.size(); ++i) {
    state.push_back(StatePart(engine, prefix, i, parts[i].weight));
  }
  return state;
}

std::vector<TensorPart> OptimizerParts(const EngineParts& engine, const std::string& prefix) {
  std::vector<TensorPart> state;
  for (const Optimizer::State& item : engine.step->optimizer().States()) {
    state.push_back(StatePart(engine, prefix + item.name + "/", item.part, item.tensor));
  }
  return state;
}

// Returns this rank's tensors for a checkpoint that are neither in ModelState nor in
// OptimizerState.
std::vector<RankTensor> RankTensors(const EngineParts& engine) {
  std::vector<RankTensor> tensors = engine.step->RankTensors();
  if (!engine.step->weights_differ()) return tensors;
  for (const auto& parts : {WeightParts(engine, "model/"), OptimizerParts(engine, "")}) {
    for (const TensorPart& part : parts)
      tensors.push_back({part.name, part.tensor, /*shared=*/false});
  }
  return tensors;
}

const NamedTensor* Find(const std::vector<NamedTensor>& tensors, const at::Tensor& tensor) {
  const auto found = std::ranges::find_if(
      tensors, [&](const NamedTensor& item) { return item.tensor.is_same(tensor); });
  return found == tensors.end() ? nullptr : &*found;
}

// Returns the name of `parameter`. Throws if it is not a parameter of the model, or if it is frozen
// although `trained` is set.
const std::string& NameOf(const EngineParts& engine, const std::string& call,
                          const at::Tensor& parameter, bool trained) {
  if (const NamedTensor* found = Find(engine.step->parameters(), parameter)) return found->name;
  const NamedTensor* const found = Find(engine.frozen, parameter);
  if (found != nullptr && !trained) return found->name;
  RefuseInput(call + (found != nullptr
                          ? ": the parameter " + found->name + " is frozen, so it has none"
                          : ": the tensor is not a parameter of this engine's model; give one "
                            "that the model's parameters() returns"));
}

// A tensor that belongs to a parameter: its weight, its gradient, or one of its optimizer states.
class ParameterTensor {
 public:
  // Finds the tensor in `state`, which has at most one part of this rank with the name `prefix` +
  // `name`. `call` is the method's name for messages, and `name` the parameter's name.
  ParameterTensor(const EngineParts& engine, std::string call, const at::Tensor& parameter,
                  const std::string& name, const std::vector<TensorPart>& state,
                  const std::string& prefix = "")
      : engine_(engine), call_(std::move(call)), parameter_(parameter), name_(prefix + name) {
    const auto found = std::ranges::find(state, name_, &TensorPart::name);
    if (found != state.end()) part_ = *found;
    const auto& divided = engine.ranks->cut().divided;
    if (const auto cut = divided.find(name); cut != divided.end()) cut_ = &cut->second;
  }

  // Returns the tensor in the shape of the whole parameter, in at least fp32; zeros if no rank has
  // the tensor. Collective.
  at::Tensor Whole() const {
    const at::NoGradGuard no_grad;
    const at::Tensor whole = at::zeros(WholeShape(), Options());
    at::Tensor flat = whole.view(-1);
    if (part_ && (cut_ == nullptr || !cut_->is_copy)) PutPart(part_->tensor, part_->shard, flat);
    const bool replicated = part_ ? part_->replicated : !engine_.step->states().sharded();
    // Each element is on one rank and is zero on all other ranks, so the sum is the whole tensor.
    if (!replicated) engine_.ranks->data().AllReduce(flat);
    if (cut_ != nullptr) engine_.ranks->tensor()->AllReduce(flat);
    return whole;
  }

  void SetWhole(const at::Tensor& value, double scale = 1) const {
    if (!value.defined() || value.sizes() != WholeShape()) {
      RefuseInput(call_ + ": the value for " + name_ + " has the shape " +
                  (value.defined() ? c10::str(value.sizes()) : "of an undefined tensor") +
                  ", not that of the parameter, " + c10::str(WholeShape()));
    }
    if (!part_) return;
    const at::NoGradGuard no_grad;
    const at::Tensor flat = (scale == 1 ? value : value * scale).contiguous().view(-1);
    part_->tensor.detach().copy_(PartOf(flat, part_->shard).view(part_->tensor.sizes()));
  }

  // Returns a copy of this rank's part in one dimension, in at least fp32; empty if this rank has
  // no part.
  at::Tensor Local() const {
    if (!part_) return at::empty({0}, Options());
    return part_->tensor.detach().flatten().to(Options(), /*non_blocking=*/false, /*copy=*/true);
  }

  void SetLocal(const at::Tensor& value, double scale = 1) const {
    const int64_t held = part_ ? part_->tensor.numel() : 0;
    if (!value.defined() || value.numel() != held) {
      RefuseInput(call_ + ": the value has " +
                  (value.defined() ? std::to_string(value.numel()) : "no") +
                  " elements; this rank holds " + std::to_string(held) + " of " + name_);
    }
    if (held == 0) return;
    const at::NoGradGuard no_grad;
    part_->tensor.detach().copy_(
        (scale == 1 ? value : value * scale).reshape(part_->tensor.sizes()));
  }

  bool has_part() const { return part_.has_value(); }

 private:
  at::IntArrayRef WholeShape() const {
    return cut_ == nullptr ? parameter_.sizes() : at::IntArrayRef(cut_->shape);
  }
  at::TensorOptions Options() const {
    return at::TensorOptions(parameter_.device())
        .dtype(at::promote_types(parameter_.scalar_type(), at::kFloat));
  }

  const EngineParts& engine_;
  const std::string call_;
  const at::Tensor& parameter_;
  const std::string name_;
  std::optional<TensorPart> part_;
  // Cut of the parameter over the tensor axis; null if it is not cut.
  const ParameterCut* cut_ = nullptr;
};

std::vector<TensorPart> ModelParts(const EngineParts& engine) {
  std::vector<TensorPart> state = WeightParts(engine, "");
  for (TensorPart& frozen : engine.step->states().Frozen()) {
    PlaceInWhole(*engine.ranks, frozen.name, frozen);
    state.push_back(std::move(frozen));
  }
  for (const NamedTensor& buffer : Unique(engine.module.named_buffers())) {
    TensorPart& part = state.emplace_back(TensorPart::Whole(buffer.name, buffer.tensor));
    part.rank0_authoritative = true;
    PlaceInWhole(*engine.ranks, buffer.name, part);
  }
  return state;
}

ParameterTensor Weight(const EngineParts& engine, const std::string& call,
                       const at::Tensor& parameter) {
  const std::string& name = NameOf(engine, call, parameter, /*trained=*/false);
  return {engine, call, parameter, name, ModelParts(engine)};
}

// Returns the gradient of `parameter`. Throws unless the gradients of all ranks were added up. If
// `must_exist`, also throws if ranks have whole gradients and this parameter got none.
ParameterTensor Gradient(const EngineParts& engine, const std::string& call,
                         const at::Tensor& parameter, bool must_exist = false) {
  const std::string& name = NameOf(engine, call, parameter, /*trained=*/true);
  if (!engine.passes.HasAllGradients()) {
    RefuseInput(call + " was called where gradients are not complete: call it after the last " +
                "Backward of a step and before its Step");
  }
  const std::vector<at::Tensor> gradients = engine.step->states().Gradients();
  std::vector<TensorPart> state;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined()) state.push_back(StatePart(engine, "", i, gradients[i]));
  }
  ParameterTensor gradient(engine, call, parameter, name, state);
  if (must_exist && !engine.step->states().sharded() && !gradient.has_part()) {
    RefuseInput(call + ": the parameter " + name + " got no gradient in this step");
  }
  return gradient;
}

// Returns the state `key` of `parameter`. Throws if the optimizer does not keep this state.
ParameterTensor State(const EngineParts& engine, const std::string& call,
                      const at::Tensor& parameter, const std::string& key) {
  const std::string& name = NameOf(engine, call, parameter, /*trained=*/true);
  std::string known;
  for (const std::string& each : engine.step->optimizer().state_names()) {
    if (each == key) {
      return {engine,
              call,
              parameter,
              name,
              OptimizerParts(engine, "optimizer/"),
              "optimizer/" + key + "/"};
    }
    known += (known.empty() ? "" : ", ") + each;
  }
  RefuseInput(call + ": the optimizer keeps no \"" + key + "\" of a parameter; " +
              (known.empty() ? "it keeps nothing that the engine knows" : "it keeps " + known));
}

}  // namespace

std::vector<TensorPart> EngineTensors::ModelState() const { return ModelParts(*parts_); }

std::vector<TensorPart> EngineTensors::OptimizerState() const {
  return OptimizerParts(*parts_, "optimizer/");
}

std::vector<TensorPart> EngineTensors::RankState() const {
  const ProcessGroup& replicas = parts_->ranks->data();
  std::vector<TensorPart> state;
  for (RankTensor& item : RankTensors(*parts_)) {
    TensorPart& part =
        state.emplace_back(TensorPart::Whole("rank_state/" + item.name, item.tensor));
    part.replicated = item.shared;
    if (item.shared) continue;
    part.shape.insert(part.shape.begin(), replicas.world_size());
    part.shard = CutShard(part.shape, 0, replicas.rank(), replicas.rank() + 1);
  }
  return state;
}

void EngineTensors::WeightsChanged() {
  parts_->step->Restart();
  parts_->step->states().CopyMasterToModel();
}

at::Tensor EngineTensors::GetFullFp32Parameter(const at::Tensor& parameter) const {
  return Weight(*parts_, "GetFullFp32Parameter", parameter).Whole();
}

void EngineTensors::SetFullFp32Parameter(const at::Tensor& parameter, const at::Tensor& value) {
  Weight(*parts_, "SetFullFp32Parameter", parameter).SetWhole(value);
  WeightsChanged();
}

at::Tensor EngineTensors::GetFullGradient(const at::Tensor& parameter) const {
  return Gradient(*parts_, "GetFullGradient", parameter).Whole() / loss_scale();
}

void EngineTensors::SetFullGradient(const at::Tensor& parameter, const at::Tensor& value) {
  Gradient(*parts_, "SetFullGradient", parameter, /*must_exist=*/true)
      .SetWhole(value, loss_scale());
}

at::Tensor EngineTensors::GetFullOptimizerState(const at::Tensor& parameter,
                                                const std::string& key) const {
  return State(*parts_, "GetFullOptimizerState", parameter, key).Whole();
}

void EngineTensors::SetFullOptimizerState(const at::Tensor& parameter, const at::Tensor& value,
                                          const std::string& key) {
  State(*parts_, "SetFullOptimizerState", parameter, key).SetWhole(value);
}

at::Tensor EngineTensors::GetLocalFp32Parameter(const at::Tensor& parameter) const {
  return Weight(*parts_, "GetLocalFp32Parameter", parameter).Local();
}

void EngineTensors::SetLocalFp32Parameter(const at::Tensor& parameter, const at::Tensor& value) {
  Weight(*parts_, "SetLocalFp32Parameter", parameter).SetLocal(value);
  WeightsChanged();
}

at::Tensor EngineTensors::GetLocalGradient(const at::Tensor& parameter) const {
  const ParameterTensor gradient = Gradient(*parts_, "GetLocalGradient", parameter);
  if (gradient.has_part()) return gradient.Local().div_(loss_scale());
  return at::zeros_like(GetLocalFp32Parameter(parameter));
}

void EngineTensors::SetLocalGradient(const at::Tensor& parameter, const at::Tensor& value) {
  Gradient(*parts_, "SetLocalGradient", parameter, /*must_exist=*/true)
      .SetLocal(value, loss_scale());
}

at::Tensor EngineTensors::GetLocalOptimizerState(const at::Tensor& parameter,
                                                 const std::string& key) const {
  return State(*parts_, "GetLocalOptimizerState", parameter, key).Local();
}

void EngineTensors::SetLocalOptimizerState(const at::Tensor& parameter, const at::Tensor& value,
                                           const std::string& key) {
  State(*parts_, "SetLocalOptimizerState", parameter, key).SetLocal(value);
}

}  // namespace dslaunch

// Whole parameters, gradients and optimizer states, put together from the ranks' parts, and back;
// and the parts themselves.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "dslaunch/engine.h"
#include "trainer/base/train_error.h"
#include "trainer/engine/engine_impl.h"
#include "trainer/parallel/whole_tensor.h"

namespace dslaunch {
namespace {

const NamedTensor* Find(const std::vector<NamedTensor>& tensors, const at::Tensor& tensor) {
  const auto found = std::ranges::find_if(
      tensors, [&](const NamedTensor& item) { return item.tensor.is_same(tensor); });
  return found == tensors.end() ? nullptr : &*found;
}

// A rank has at most one part of each tensor.
const TensorPart* FindPart(const std::vector<TensorPart>& state, const std::string& name) {
  const auto found = std::ranges::find(state, name, &TensorPart::name);
  return found == state.end() ? nullptr : &*found;
}

// In which copies of a parameter's weight, gradient and state are given out.
at::ScalarType WideDtype(const at::Tensor& parameter) {
  return at::promote_types(parameter.scalar_type(), at::kFloat);
}

[[noreturn]] void RefuseForeign(const std::string& call) {
  RefuseInput(call + ": the tensor is not a parameter of this engine's model; give one that the " +
              "model's parameters() returns");
}

void CheckShape(const std::string& call, const std::string& name, const std::vector<int64_t>& shape,
                const at::Tensor& value) {
  if (value.defined() && value.sizes() == shape) return;
  RefuseInput(call + ": the value for " + name + " has the shape " +
              (value.defined() ? c10::str(value.sizes()) : "of an undefined tensor") +
              ", not that of the parameter, " + c10::str(at::IntArrayRef(shape)));
}

}  // namespace

const std::string& EngineCore::Impl::TrainedName(const std::string& call,
                                                 const at::Tensor& parameter) const {
  if (const NamedTensor* found = Find(parameters(), parameter)) return found->name;
  if (const NamedTensor* found = Find(frozen_, parameter)) {
    RefuseInput(call + ": the parameter " + found->name + " is frozen, so it has none");
  }
  RefuseForeign(call);
}

const std::string& EngineCore::Impl::NameOf(const std::string& call,
                                            const at::Tensor& parameter) const {
  if (const NamedTensor* found = Find(frozen_, parameter)) return found->name;
  if (const NamedTensor* found = Find(parameters(), parameter)) return found->name;
  RefuseForeign(call);
}

const ParameterCut* EngineCore::Impl::CutOf(const at::Tensor& parameter) const {
  const std::map<std::string, ParameterCut>& divided = ranks_->cut().divided;
  for (const std::vector<NamedTensor>* list : {&frozen_, &parameters()}) {
    const NamedTensor* found = Find(*list, parameter);
    if (found == nullptr) continue;
    const auto cut = divided.find(found->name);
    return cut == divided.end() ? nullptr : &cut->second;
  }
  return nullptr;
}

std::vector<int64_t> EngineCore::Impl::WholeShape(const at::Tensor& parameter) const {
  const ParameterCut* cut = CutOf(parameter);
  return cut == nullptr ? parameter.sizes().vec() : cut->shape;
}

at::Tensor EngineCore::Impl::Whole(const std::vector<TensorPart>& state, const std::string& name,
                                   const at::Tensor& parameter) const {
  const at::NoGradGuard no_grad;
  const at::Tensor whole = at::zeros(
      WholeShape(parameter), at::TensorOptions(parameter.device()).dtype(WideDtype(parameter)));
  at::Tensor flat = whole.view(-1);
  bool replicated = !states().sharded();
  if (const TensorPart* part = FindPart(state, name)) {
    PutPart(part->tensor, part->shard, flat);
    replicated = part->replicated;
  }
  // Every element is on one rank, and zero on the others.
  if (!replicated) ranks_->data().AllReduce(flat);
  if (CutOf(parameter) != nullptr) ranks_->tensor()->AllReduce(flat);
  return whole;
}

void EngineCore::Impl::SetWhole(const std::vector<TensorPart>& state, const std::string& name,
                                const at::Tensor& value) const {
  const at::NoGradGuard no_grad;
  const TensorPart* part = FindPart(state, name);
  if (part == nullptr) return;
  part->tensor.detach().copy_(
      PartOf(value.contiguous().view(-1), part->shard).view(part->tensor.sizes()));
}

at::Tensor EngineCore::Impl::Local(const std::vector<TensorPart>& state, const std::string& name,
                                   const at::Tensor& parameter) const {
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions(parameter.device()).dtype(WideDtype(parameter));
  const TensorPart* part = FindPart(state, name);
  if (part == nullptr) return at::empty({0}, options);
  return part->tensor.detach().flatten().to(options, /*non_blocking=*/false, /*copy=*/true);
}

void EngineCore::Impl::SetLocal(const std::string& call, const std::vector<TensorPart>& state,
                                const std::string& name, const at::Tensor& value) const {
  const at::NoGradGuard no_grad;
  const TensorPart* part = FindPart(state, name);
  const int64_t held = part == nullptr ? 0 : part->tensor.numel();
  if (!value.defined() || value.numel() != held) {
    RefuseInput(call + ": the value has " +
                (value.defined() ? std::to_string(value.numel()) : "no") + " elements; this rank " +
                "holds " + std::to_string(held) + " of " + name);
  }
  if (held > 0) part->tensor.detach().copy_(value.reshape(part->tensor.sizes()));
}

void EngineCore::Impl::CheckHasGradient(const std::string& call,
                                        const std::vector<TensorPart>& gradients,
                                        const std::string& name) const {
  if (states().sharded() || FindPart(gradients, name) != nullptr) return;
  RefuseInput(call + ": the parameter " + name + " got no gradient in this step");
}

std::vector<TensorPart> EngineCore::Impl::GradientState(const std::string& call) const {
  if (!backward_done_ || !Boundary()) {
    RefuseInput(call + " was called where gradients are not complete: call it after the last " +
                "Backward of a step and before its Step");
  }
  std::vector<at::Tensor> gradients = states().Gradients();
  std::vector<TensorPart> state;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined()) state.push_back(StatePart("", i, gradients[i]));
  }
  return state;
}

std::string EngineCore::Impl::StateKey(const std::string& call, const at::Tensor& parameter,
                                       const std::string& key) const {
  const std::string& name = TrainedName(call, parameter);
  std::string known;
  for (const std::string& each : optimizer().state_names()) {
    if (each == key) return "optimizer/" + key + "/" + name;
    known += (known.empty() ? "" : ", ") + each;
  }
  RefuseInput(call + ": the optimizer keeps no \"" + key + "\" of a parameter; " +
              (known.empty() ? "it keeps nothing that the engine knows" : "it keeps " + known));
}

at::Tensor EngineCore::GetFullFp32Parameter(const at::Tensor& parameter) const {
  const std::string& name = impl_->NameOf("GetFullFp32Parameter", parameter);
  return impl_->Whole(ModelState(), name, parameter);
}

void EngineCore::SetFullFp32Parameter(const at::Tensor& parameter, const at::Tensor& value) {
  const std::string& name = impl_->NameOf("SetFullFp32Parameter", parameter);
  CheckShape("SetFullFp32Parameter", name, impl_->WholeShape(parameter), value);
  impl_->SetWhole(ModelState(), name, value);
  WeightsChanged();
}

at::Tensor EngineCore::GetFullGradient(const at::Tensor& parameter) const {
  const std::string& name = impl_->TrainedName("GetFullGradient", parameter);
  return impl_->Whole(impl_->GradientState("GetFullGradient"), name, parameter) /
         impl_->step_->loss_scale();
}

void EngineCore::SetFullGradient(const at::Tensor& parameter, const at::Tensor& value) {
  const std::string& name = impl_->TrainedName("SetFullGradient", parameter);
  const std::vector<TensorPart> gradients = impl_->GradientState("SetFullGradient");
  CheckShape("SetFullGradient", name, impl_->WholeShape(parameter), value);
  impl_->CheckHasGradient("SetFullGradient", gradients, name);
  impl_->SetWhole(gradients, name, value * impl_->step_->loss_scale());
}

at::Tensor EngineCore::GetFullOptimizerState(const at::Tensor& parameter,
                                             const std::string& key) const {
  const std::string name = impl_->StateKey("GetFullOptimizerState", parameter, key);
  return impl_->Whole(OptimizerState(), name, parameter);
}

void EngineCore::SetFullOptimizerState(const at::Tensor& parameter, const at::Tensor& value,
                                       const std::string& key) {
  const std::string name = impl_->StateKey("SetFullOptimizerState", parameter, key);
  CheckShape("SetFullOptimizerState", name, impl_->WholeShape(parameter), value);
  impl_->SetWhole(OptimizerState(), name, value);
}

at::Tensor EngineCore::GetLocalFp32Parameter(const at::Tensor& parameter) const {
  const std::string& name = impl_->NameOf("GetLocalFp32Parameter", parameter);
  return impl_->Local(ModelState(), name, parameter);
}

void EngineCore::SetLocalFp32Parameter(const at::Tensor& parameter, const at::Tensor& value) {
  const std::string& name = impl_->NameOf("SetLocalFp32Parameter", parameter);
  impl_->SetLocal("SetLocalFp32Parameter", ModelState(), name, value);
  WeightsChanged();
}

at::Tensor EngineCore::GetLocalGradient(const at::Tensor& parameter) const {
  const std::string& name = impl_->TrainedName("GetLocalGradient", parameter);
  const std::vector<TensorPart> gradients = impl_->GradientState("GetLocalGradient");
  if (FindPart(gradients, name) == nullptr)
    return at::zeros_like(impl_->Local(ModelState(), name, parameter));
  return impl_->Local(gradients, name, parameter).div_(impl_->step_->loss_scale());
}

void EngineCore::SetLocalGradient(const at::Tensor& parameter, const at::Tensor& value) {
  const std::string& name = impl_->TrainedName("SetLocalGradient", parameter);
  const std::vector<TensorPart> gradients = impl_->GradientState("SetLocalGradient");
  impl_->CheckHasGradient("SetLocalGradient", gradients, name);
  impl_->SetLocal("SetLocalGradient", gradients, name,
                  value.defined() ? value * impl_->step_->loss_scale() : value);
}

at::Tensor EngineCore::GetLocalOptimizerState(const at::Tensor& parameter,
                                              const std::string& key) const {
  const std::string name = impl_->StateKey("GetLocalOptimizerState", parameter, key);
  return impl_->Local(OptimizerState(), name, parameter);
}

void EngineCore::SetLocalOptimizerState(const at::Tensor& parameter, const at::Tensor& value,
                                        const std::string& key) {
  const std::string name = impl_->StateKey("SetLocalOptimizerState", parameter, key);
  impl_->SetLocal("SetLocalOptimizerState", OptimizerState(), name, value);
}

}  // namespace dslaunch

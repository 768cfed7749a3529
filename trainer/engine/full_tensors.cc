// Whole parameters, gradients and optimizer states, put together from the ranks' parts, and back.
#include <ATen/ATen.h>

#include <algorithm>

#include "dslaunch/engine.h"
#include "trainer/base/train_error.h"
#include "trainer/engine/engine_impl.h"

namespace dslaunch {
namespace {

const NamedTensor* Find(const std::vector<NamedTensor>& tensors, const at::Tensor& tensor) {
  const auto found = std::ranges::find_if(
      tensors, [&](const NamedTensor& item) { return item.tensor.is_same(tensor); });
  return found == tensors.end() ? nullptr : &*found;
}

[[noreturn]] void RefuseForeign(const std::string& call) {
  RefuseInput(call + ": the tensor is not a parameter of this engine's model; give one that the " +
              "model's parameters() returns");
}

void CheckShape(const std::string& call, const std::string& name, const at::Tensor& parameter,
                const at::Tensor& value) {
  if (value.defined() && value.sizes() == parameter.sizes()) return;
  RefuseInput(call + ": the value for " + name + " has the shape " +
              (value.defined() ? c10::str(value.sizes()) : "of an undefined tensor") +
              ", not that of the parameter, " + c10::str(parameter.sizes()));
}

}  // namespace

const std::string& EngineCore::Impl::TrainedName(const std::string& call,
                                                 const at::Tensor& parameter) const {
  if (const NamedTensor* found = Find(parameters_, parameter)) return found->name;
  if (const NamedTensor* found = Find(frozen_, parameter)) {
    RefuseInput(call + ": the parameter " + found->name + " is frozen, so it has none");
  }
  RefuseForeign(call);
}

const std::string& EngineCore::Impl::NameOf(const std::string& call,
                                            const at::Tensor& parameter) const {
  if (const NamedTensor* found = Find(frozen_, parameter)) return found->name;
  if (const NamedTensor* found = Find(parameters_, parameter)) return found->name;
  RefuseForeign(call);
}

at::Tensor EngineCore::Impl::Whole(const std::vector<TensorPart>& state, const std::string& name,
                                   const at::Tensor& parameter) const {
  const at::NoGradGuard no_grad;
  const at::ScalarType dtype = at::promote_types(parameter.scalar_type(), at::kFloat);
  at::Tensor flat =
      at::zeros({parameter.numel()}, at::TensorOptions(parameter.device()).dtype(dtype));
  bool replicated = !states_->sharded();
  for (const TensorPart& part : state) {
    if (part.name != name) continue;
    flat.narrow(0, part.start, part.tensor.numel()).copy_(part.tensor.flatten());
    replicated = part.replicated;
  }
  // Every element is on one rank, and zero on the others.
  if (!replicated) ranks_.replicas->AllReduce(flat);
  return flat.view(parameter.sizes());
}

void EngineCore::Impl::SetWhole(const std::vector<TensorPart>& state, const std::string& name,
                                const at::Tensor& value) const {
  const at::NoGradGuard no_grad;
  const at::Tensor flat = value.flatten();
  for (const TensorPart& part : state) {
    if (part.name != name) continue;
    part.tensor.detach().copy_(
        flat.narrow(0, part.start, part.tensor.numel()).view(part.tensor.sizes()));
  }
}

std::vector<TensorPart> EngineCore::Impl::GradientState(const std::string& call) const {
  if (!backward_done_ || !Boundary()) {
    RefuseInput(call + " was called where gradients are not complete: call it after the last " +
                "Backward of a step and before its Step");
  }
  std::vector<at::Tensor> gradients = states_->Gradients();
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
  for (const std::string& each : optimizer_->state_names()) {
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
  CheckShape("SetFullFp32Parameter", name, parameter, value);
  impl_->SetWhole(ModelState(), name, value);
  WeightsChanged();
}

at::Tensor EngineCore::GetFullGradient(const at::Tensor& parameter) const {
  const std::string& name = impl_->TrainedName("GetFullGradient", parameter);
  return impl_->Whole(impl_->GradientState("GetFullGradient"), name, parameter) /
         impl_->loss_scale();
}

void EngineCore::SetFullGradient(const at::Tensor& parameter, const at::Tensor& value) {
  const std::string& name = impl_->TrainedName("SetFullGradient", parameter);
  const std::vector<TensorPart> gradients = impl_->GradientState("SetFullGradient");
  CheckShape("SetFullGradient", name, parameter, value);
  if (!impl_->states_->sharded() &&
      std::ranges::find(gradients, name, &TensorPart::name) == gradients.end()) {
    RefuseInput("SetFullGradient: the parameter " + name + " got no gradient in this step");
  }
  impl_->SetWhole(gradients, name, value * impl_->loss_scale());
}

at::Tensor EngineCore::GetFullOptimizerState(const at::Tensor& parameter,
                                             const std::string& key) const {
  const std::string name = impl_->StateKey("GetFullOptimizerState", parameter, key);
  return impl_->Whole(OptimizerState(), name, parameter);
}

void EngineCore::SetFullOptimizerState(const at::Tensor& parameter, const at::Tensor& value,
                                       const std::string& key) {
  const std::string name = impl_->StateKey("SetFullOptimizerState", parameter, key);
  CheckShape("SetFullOptimizerState", name, parameter, value);
  impl_->SetWhole(OptimizerState(), name, value);
}

}  // namespace dslaunch

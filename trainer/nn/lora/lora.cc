#include "trainer/nn/lora/lora.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trainer/base/train_error.h"
#include "trainer/nn/split_backward.h"

namespace dslaunch {
namespace {

// A module with the only parameter "weight", as PEFT's names have it.
class MatrixImpl : public torch::nn::Module {
 public:
  explicit MatrixImpl(at::Tensor values)
      : weight(register_parameter("weight", std::move(values))) {}
  at::Tensor weight;
};

struct NamedLinear {
  std::string name;
  std::shared_ptr<AdaptableLinear> layer;
};

std::vector<NamedLinear> LinearLayers(const torch::nn::Module& model) {
  std::vector<NamedLinear> layers;
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    if (auto linear = std::dynamic_pointer_cast<AdaptableLinear>(item.value())) {
      layers.push_back({item.key(), std::move(linear)});
    }
  }
  return layers;
}

void CheckTargets(const LoraConfig& lora, const std::vector<NamedLinear>& layers) {
  for (const std::string& target : lora.targets) {
    LoraConfig alone;
    alone.targets = {target};
    const bool found = std::ranges::any_of(
        layers, [&](const NamedLinear& linear) { return alone.Adapts(linear.name); });
    if (found) continue;
    std::set<std::string> ends;
    for (const NamedLinear& linear : layers) {
      ends.insert(linear.name.substr(linear.name.rfind('.') + 1));
    }
    std::string known;
    for (const std::string& end : ends) known += (known.empty() ? "" : ", ") + end;
    RefuseInput("lora.targets has \"" + target +
                "\", which is not a linear layer of the model; it has " + known);
  }
}

}  // namespace

void AdaptableLinear::AddAdapter(const LoraConfig& lora) {
  scale_ = lora.scale();
  dropout_ = lora.dropout;
  const double bound = 1 / std::sqrt(static_cast<double>(in_));
  const auto a = std::make_shared<MatrixImpl>(at::empty({lora.rank, in_}).uniform_(-bound, bound));
  const auto b = std::make_shared<MatrixImpl>(at::zeros({out_, lora.rank}));
  a_ = register_module("lora_A", a)->weight;
  b_ = register_module("lora_B", b)->weight;
}

at::Tensor AdaptableLinear::Adapted(const at::Tensor& y, const at::Tensor& x) const {
  if (!has_adapter()) return y;
  // The narrow tensor is scaled, which takes less time than the wide ones.
  const at::Tensor narrow = ApplyLinear(at::dropout(x, dropout_, is_training()), a_) * scale_;
  return y + ApplyLinear(narrow, b_);
}

void AddAdapters(torch::nn::Module& model, const LoraConfig& lora) {
  for (at::Tensor& parameter : model.parameters()) parameter.set_requires_grad(false);
  const std::vector<NamedLinear> layers = LinearLayers(model);
  CheckTargets(lora, layers);
  const bool divided = std::ranges::any_of(
      layers, [](const NamedLinear& linear) { return !linear.layer->cuts().empty(); });
  if (divided) RefuseInput("lora cannot adapt layers that tensor_parallel divides; leave one out");
  for (const auto& [name, layer] : layers) {
    if (lora.Adapts(name)) layer->AddAdapter(lora);
  }
}

}  // namespace dslaunch

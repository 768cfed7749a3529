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
#include "trainer/nn/tensor_parallel/exchanges.h"
#include "trainer/nn/tensor_parallel/region_seed.h"

namespace dslaunch {
namespace {

// A module with the single parameter "weight", so that names are the same as in PEFT.
class MatrixImpl : public DividedModule {
 public:
  MatrixImpl(const at::Tensor& values, const std::optional<Cut>& cut)
      : weight(RegisterPart("weight", values, cut)) {}
  at::Tensor weight;
};

std::optional<Cut> CutOfDim(size_t dim, std::optional<Cut> cut) {
  if (cut) cut->dim = dim;
  return cut;
}

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
  const auto a = std::make_shared<MatrixImpl>(at::empty({lora.rank, in_}).uniform_(-bound, bound),
                                              CutOfDim(1, division_.inputs));
  const auto b =
      std::make_shared<MatrixImpl>(at::zeros({out_, lora.rank}), CutOfDim(0, division_.outputs));
  a_ = register_module("lora_A", a)->weight;
  b_ = register_module("lora_B", b)->weight;
}

at::Tensor AdaptableLinear::Adapted(const at::Tensor& y, const at::Tensor& x) const {
  if (!has_adapter()) return y;
  const TensorParallel& tensor = division_.tensor;
  const bool divides_inputs = division_.inputs.has_value();
  const at::Tensor a = divides_inputs ? a_ : SumGradients(a_, tensor);
  const at::Tensor b = divides_inputs ? SumGradients(b_, tensor)
                                      : SumHoldersGradients(b_, division_.holders, tensor);
  at::Tensor dropped = x;
  if (is_training() && dropout_ > 0) {
    // Ranks with the same inputs must draw the same mask, and ranks with different inputs must draw
    // different masks.
    const RegionSeed seed(tensor, x.device(), divides_inputs);
    dropped = at::dropout(x, dropout_, /*train=*/true);
  }
  // Scaling the wide result would take more time, so the narrow tensor is scaled.
  const at::Tensor narrow = ApplyLinear(dropped, a) * scale_;
  return y + ApplyLinear(narrow, b);
}

void AddAdapters(torch::nn::Module& model, const LoraConfig& lora) {
  for (at::Tensor& parameter : model.parameters()) parameter.set_requires_grad(false);
  const std::vector<NamedLinear> layers = LinearLayers(model);
  CheckTargets(lora, layers);
  for (const auto& [name, layer] : layers) {
    if (lora.Adapts(name)) layer->AddAdapter(lora);
  }
}

}  // namespace dslaunch

// A module's tensors by their names.
#pragma once

#include <torch/nn/module.h>

#include <set>
#include <vector>

#include "dslaunch/named_tensor.h"
#include "dslaunch/tensor_part.h"

namespace dslaunch {

// Parameters or buffers of a module. A weight that is tied, registered in several places, has its
// first name only.
template <class Items>
std::vector<NamedTensor> Unique(const Items& items) {
  std::set<const at::TensorImpl*> seen;
  std::vector<NamedTensor> tensors;
  for (const auto& item : items) {
    if (!item.value().defined()) continue;
    if (seen.insert(item.value().unsafeGetTensorImpl()).second) {
      tensors.push_back({item.key(), item.value()});
    }
  }
  return tensors;
}

inline std::vector<NamedTensor> TrainableParameters(const torch::nn::Module& module) {
  std::vector<NamedTensor> parameters = Unique(module.named_parameters());
  std::erase_if(parameters, [](const NamedTensor& item) { return !item.tensor.requires_grad(); });
  return parameters;
}

inline std::vector<NamedTensor> FrozenParameters(const torch::nn::Module& module) {
  std::vector<NamedTensor> parameters = Unique(module.named_parameters());
  std::erase_if(parameters, [](const NamedTensor& item) { return item.tensor.requires_grad(); });
  return parameters;
}

// Returns the parameters that are not trained. Each rank holds them whole.
inline std::vector<TensorPart> FrozenParts(const torch::nn::Module& module) {
  std::vector<TensorPart> frozen;
  for (const NamedTensor& item : FrozenParameters(module)) {
    frozen.push_back(TensorPart::Whole(item.name, item.tensor));
  }
  return frozen;
}

inline std::vector<at::Tensor> TensorsOf(const std::vector<NamedTensor>& items) {
  std::vector<at::Tensor> tensors;
  for (const NamedTensor& item : items) tensors.push_back(item.tensor);
  return tensors;
}

inline int64_t Bytes(const std::vector<NamedTensor>& tensors) {
  int64_t bytes = 0;
  for (const NamedTensor& item : tensors) bytes += static_cast<int64_t>(item.tensor.nbytes());
  return bytes;
}

}  // namespace dslaunch

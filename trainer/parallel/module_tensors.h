// Lists a module's tensors by name.
#pragma once

#include <torch/nn/module.h>

#include <set>
#include <vector>

#include "dslaunch/named_tensor.h"
#include "dslaunch/tensor_part.h"

namespace dslaunch {

// Returns the defined parameters or buffers in `items`, each once. A tied weight, which is
// registered in several places, gets its first name.
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

// Returns the parameters that are not trained, each as a whole tensor.
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

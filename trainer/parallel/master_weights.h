// The fp32 copies of 16-bit parameters, which keep small updates.
#pragma once

#include <vector>

#include "dslaunch/named_tensor.h"

namespace dslaunch {

// Copies the elements of `model` that the program has changed into `master`. An element that still
// equals `master` rounded keeps the full precision of `master`.
void CopyChanges(const at::Tensor& model, const at::Tensor& master);

// One thread.
class MasterWeights {
 public:
  // Copies `parameters` that are not fp32, with their present, rounded values; none if not
  // `enabled`.
  MasterWeights(const std::vector<NamedTensor>& parameters, bool enabled);

  // The tensors that the optimizer updates: for each parameter its copy, or itself without one.
  const std::vector<NamedTensor>& weights() const { return weights_; }

  // Copies the weights into the model's parameters, rounded.
  void CopyToModel() const;

  // Copies parameters that the program has changed into the fp32 copies.
  void CopyFromModel() const;

  int64_t bytes() const;  // size of the copies

 private:
  std::vector<NamedTensor> weights_;
  std::vector<at::Tensor> masters_, model_;  // pairs
};

}  // namespace dslaunch

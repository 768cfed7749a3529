// The fp32 copies of 16-bit parameters, in which small updates are not lost.
#pragma once

#include <vector>

#include "dslaunch/named_tensor.h"

namespace dslaunch {

// Makes `master` follow `model`, which somebody has changed: what still is `master` rounded keeps
// its digits there.
void TakeChanges(const at::Tensor& model, const at::Tensor& master);

// One thread.
class MasterWeights {
 public:
  // Copies those of `parameters` that are not fp32 already, as they are now: rounded to 16 bit.
  // Without `enabled` none.
  MasterWeights(const std::vector<NamedTensor>& parameters, bool enabled);

  // What the optimizer updates: of each parameter its copy, or the parameter itself where there is
  // none.
  const std::vector<NamedTensor>& weights() const { return weights_; }

  // Rounds the copies into the model's parameters.
  void CopyToModel() const;

  // The reverse, for parameters that somebody has changed.
  void CopyFromModel() const;

  int64_t bytes() const;  // of the copies

 private:
  std::vector<NamedTensor> weights_;
  std::vector<at::Tensor> masters_, model_;  // pairs
};

}  // namespace dslaunch

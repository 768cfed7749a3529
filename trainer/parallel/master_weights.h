// Keeps fp32 copies of 16-bit parameters, so that rounding does not lose small updates.
#pragma once

#include <vector>

#include "dslaunch/named_tensor.h"

namespace dslaunch {

// Copies the elements of `model` that the program has changed into `master`. An element of `master`
// whose rounded value still equals `model` keeps its full precision.
void CopyChanges(const at::Tensor& model, const at::Tensor& master);

// Holds the fp32 master weights of 16-bit parameters. Not thread-safe.
class MasterWeights {
 public:
  // Makes an fp32 copy of each parameter in fp16 or bfloat16 with its current value. Makes no
  // copies unless `enabled`.
  MasterWeights(const std::vector<NamedTensor>& parameters, bool enabled);

  // Returns the tensors that the optimizer updates: for each parameter its fp32 copy, or the
  // parameter itself if it has no copy.
  const std::vector<NamedTensor>& weights() const { return weights_; }

  // Rounds the fp32 copies into the model's parameters.
  void CopyToModel() const;

  // Copies the elements that the program has changed in the model into the fp32 copies.
  void CopyFromModel() const;

  int64_t bytes() const;  // returns the size of the fp32 copies in bytes

 private:
  std::vector<NamedTensor> weights_;
  // The fp32 copies, and the parameter that each was copied from.
  std::vector<at::Tensor> masters_, model_;
};

}  // namespace dslaunch

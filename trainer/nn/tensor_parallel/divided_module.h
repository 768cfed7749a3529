// Modules of which each rank of a tensor-parallel group holds a part.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dslaunch/shard.h"
#include "trainer/nn/tensor_parallel/tensor_parallel.h"

namespace dslaunch {

// The indices of a dimension that one rank holds.
struct PartRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Returns the range of `tensor.part` if the parts divide `size` indices equally; the last ones may
// have fewer or none. The memory of a part has room for size / parts, rounded up.
PartRange RangeOf(const TensorParallel& tensor, int64_t size);

// How dimension `dim` of a parameter is cut. The dimension consists of `blocks` equal blocks, which
// are cut alike (GPT-2's q, k and v side by side).
struct Cut {
  size_t dim = 0;
  PartRange range;       // indices in each block
  int64_t room = 0;      // indices in each block that fit into the part's memory; the last are 0
  int64_t blocks = 1;    // number of equal blocks; if above 1, the parts are equal too
  bool is_copy = false;  // as in ParameterCut::is_copy
};

// Returns the cut of dimension `dim`, which has `size` indices, in equal parts, or nullopt if
// `tensor` divides nothing.
std::optional<Cut> EqualCut(const TensorParallel& tensor, size_t dim, int64_t size,
                            int64_t blocks = 1);

class DividedModule : public torch::nn::Module {
 public:
  // The cuts of this module's own parameters, by name.
  const std::map<std::string, ParameterCut>& cuts() const { return cuts_; }

 protected:
  // Registers this rank's part of `whole`, a copy, as a parameter, or `whole` itself for nullopt.
  at::Tensor RegisterPart(const std::string& name, const at::Tensor& whole,
                          const std::optional<Cut>& cut);

 private:
  std::map<std::string, ParameterCut> cuts_;
};

// Returns the cuts of all modules in `model`, by parameter.
std::map<std::string, ParameterCut> CutsIn(const torch::nn::Module& model);

}  // namespace dslaunch

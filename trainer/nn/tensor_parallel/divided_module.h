// Defines modules of which each rank of a tensor-parallel group holds a part.
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

// The range of indices [begin, end) of a dimension that a rank holds.
struct PartRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Returns the range of `tensor.part` if `size` indices are divided equally. The last parts may have
// fewer indices or none. The memory of each part has room for size / parts indices, rounded up.
PartRange RangeOf(const TensorParallel& tensor, int64_t size);

// How dimension `dim` of a parameter is cut. The dimension consists of `blocks` equal blocks, which
// are cut in the same way (such as GPT-2's q, k and v side by side).
struct Cut {
  size_t dim = 0;
  PartRange range;       // indices in each block that the rank holds
  int64_t room = 0;      // number of indices per block in the part's memory; unused memory is 0
  int64_t blocks = 1;    // number of equal blocks; if above 1, all parts are equal
  bool is_copy = false;  // as in ParameterCut: true if a lower rank has the same elements
};

// Returns the cut of dimension `dim`, which has `size` indices, into equal parts; nullopt if
// `tensor` divides nothing.
std::optional<Cut> EqualCut(const TensorParallel& tensor, size_t dim, int64_t size,
                            int64_t blocks = 1);

class DividedModule : public torch::nn::Module {
 public:
  // Returns the cuts of this module's own parameters, without those of submodules, by name.
  const std::map<std::string, ParameterCut>& cuts() const { return cuts_; }

 protected:
  // Registers a copy of this rank's part of `whole` as a parameter and returns it. Registers
  // `whole` itself if `cut` is nullopt.
  at::Tensor RegisterPart(const std::string& name, const at::Tensor& whole,
                          const std::optional<Cut>& cut);

 private:
  std::map<std::string, ParameterCut> cuts_;
};

// Returns the cuts of all submodules of `model`, by the parameters' names in `model`.
std::map<std::string, ParameterCut> CutsIn(const torch::nn::Module& model);

}  // namespace dslaunch

// Adds low-rank adapters to linear layers (LoRA: Hu et al. 2021, arXiv 2106.09685, section 4.1).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "trainer/config/lora_config.h"
#include "trainer/nn/tensor_parallel/divided_module.h"
#include "trainer/nn/tensor_parallel/tensor_parallel.h"

namespace dslaunch {

// How a linear layer is divided over a tensor-parallel group: by its outputs, by its inputs, or not
// at all. `dim` of a cut is a dimension of the layer's weight.
struct LinearDivision {
  TensorParallel tensor;
  std::optional<Cut> outputs;
  std::optional<Cut> inputs;
  int holders = 1;  // number of ranks with the same part of the outputs
};

// A linear layer that can get an adapter. The layers of the model families derive from this class
// and pass their result to Adapted(). The adapter is divided like the layer: B with the outputs, or
// A with the inputs. Every rank has the undivided matrix as a whole, and the matrix's gradient is
// summed over the ranks.
class AdaptableLinear : public DividedModule {
 public:
  // Registers lora_A.weight [rank, in], drawn from uniform(-1/sqrt(in), 1/sqrt(in)) as PEFT does,
  // and lora_B.weight [out, rank], filled with zeros. With division it registers this rank's parts.
  void AddAdapter(const LoraConfig& lora);

 protected:
  // Creates a layer; `in` and `out` are the sizes of the whole layer.
  AdaptableLinear(int64_t in, int64_t out, LinearDivision division)
      : in_(in), out_(out), division_(std::move(division)) {}

  // Returns y + scale * B A dropout(x), or y without an adapter. x is [..., in], and y is the
  // layer's own result for x, [..., out]. In a divided layer both are this rank's parts. If the
  // inputs are divided, y and the result are this rank's summands, which LeaveRegion adds up later.
  at::Tensor Adapted(const at::Tensor& y, const at::Tensor& x) const;
  bool has_adapter() const { return a_.defined(); }
  const LinearDivision& division() const { return division_; }

 private:
  int64_t in_, out_;
  LinearDivision division_;
  double scale_ = 0, dropout_ = 0;
  at::Tensor a_, b_;
};

// Freezes all parameters of `model` and adds adapters to the layers that `lora` names. Draws
// initial values from the default generator, after the model's values. Throws kBadInput, naming the
// target, if a target does not name an AdaptableLinear.
void AddAdapters(torch::nn::Module& model, const LoraConfig& lora);

}  // namespace dslaunch

// Low-rank adapters of linear layers (LoRA: Hu et al. 2021, arXiv 2106.09685, section 4.1).
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>

#include "trainer/config/lora_config.h"
#include "trainer/nn/tensor_parallel/divided_module.h"

namespace dslaunch {

// A linear layer that can get an adapter: the layers of the families derive from it, and pass their
// result through Adapted().
class AdaptableLinear : public DividedModule {
 public:
  // Registers lora_A.weight [rank, in], drawn from uniform(-1/sqrt(in), 1/sqrt(in)) as PEFT does,
  // and lora_B.weight [out, rank], zeros.
  void AddAdapter(const LoraConfig& lora);

 protected:
  AdaptableLinear(int64_t in, int64_t out) : in_(in), out_(out) {}

  // Returns y + scale * B A dropout(x), or y without an adapter. x: [..., in], y: [..., out], the
  // layer's own result for x.
  at::Tensor Adapted(const at::Tensor& y, const at::Tensor& x) const;
  bool has_adapter() const { return a_.defined(); }

 private:
  int64_t in_, out_;
  double scale_ = 0, dropout_ = 0;
  at::Tensor a_, b_;
};

// Freezes all parameters of `model` and adds adapters to the layers that `lora` names. Draws from
// the default generator, after all that the model has drawn. Throws kBadInput, naming the target,
// if a target is not the name of an AdaptableLinear; and if the model is divided over a
// tensor-parallel group.
void AddAdapters(torch::nn::Module& model, const LoraConfig& lora);

}  // namespace dslaunch

// GPT-2 with Hugging Face's names and layout (GPT2LMHeadModel).
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <vector>

#include "dslaunch/model.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

// All of it: the head is wte again.
class Gpt2TransformerImpl : public torch::nn::Module {
 public:
  explicit Gpt2TransformerImpl(const Gpt2Config& config);
  // The embedding, each block, and the head with the norm before it.
  std::vector<ModelLayer> Layers();

 private:
  at::Tensor Embed(const at::Tensor& tokens);

  int64_t n_positions_;
  double embd_pdrop_;
  torch::nn::Embedding wte_, wpe_;
  torch::nn::ModuleList h_;
  torch::nn::LayerNorm ln_f_;
};
TORCH_MODULE(Gpt2Transformer);

// Each matrix is drawn once, in the order of parameters(): normal(0, initializer_range), the two
// c_proj of each block with 1 / sqrt(2 n_layer) of that. Norms and biases draw nothing.
class Gpt2 : public Model {
 public:
  // input_shape: {T}, at most n_positions tokens.
  Gpt2(const Gpt2Config& config, const std::vector<int64_t>& input_shape);
  // int64 [B, T], T at most n_positions -> logits [B, T, vocab_size]
  at::Tensor forward(const at::Tensor& tokens) override;
  std::vector<ModelLayer> Layers() override { return transformer_->Layers(); }
  at::Tensor Loss(const at::Tensor& output, const at::Tensor& targets,
                  int64_t reduction) const override;
  const Gpt2Config& config() const { return config_; }

 private:
  Gpt2Config config_;
  Gpt2Transformer transformer_;
};

}  // namespace dslaunch

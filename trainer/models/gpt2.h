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

// Everything but the head, which is transformer.wte again.
class Gpt2TransformerImpl : public torch::nn::Module {
 public:
  explicit Gpt2TransformerImpl(const Gpt2Config& config);
  // int64 [B, T] -> [B, T, n_embd]
  at::Tensor forward(const at::Tensor& tokens);
  const at::Tensor& token_embedding() const { return wte_->weight; }

 private:
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
  const Gpt2Config& config() const { return config_; }

 private:
  Gpt2Config config_;
  Gpt2Transformer transformer_;
};

}  // namespace dslaunch

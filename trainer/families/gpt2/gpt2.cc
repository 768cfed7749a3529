// GPT-2 with Hugging Face's names and layout (GPT2LMHeadModel).
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "dslaunch/model.h"
#include "trainer/base/train_error.h"
#include "trainer/families/gpt2/gpt2_config.h"
#include "trainer/nn/cross_entropy.h"
#include "trainer/nn/layer_norm.h"
#include "trainer/nn/run_layers.h"
#include "trainer/nn/split_backward.h"
#include "trainer/nn/tensor_parallel/tensor_parallel.h"

namespace dslaunch {
namespace {

at::Tensor DrawNormal(at::IntArrayRef shape, double std) {
  return at::empty(shape).normal_(0, std);
}

double ProjectionStd(const Gpt2Config& config) {
  return config.initializer_range / std::sqrt(2 * static_cast<double>(config.n_layer));
}

torch::nn::Embedding Embedding(int64_t rows, const Gpt2Config& config) {
  return torch::nn::Embedding(
      torch::nn::EmbeddingOptions(rows, config.n_embd)
          ._weight(DrawNormal({rows, config.n_embd}, config.initializer_range)));
}

torch::nn::LayerNorm Norm(const Gpt2Config& config) {
  return torch::nn::LayerNorm(
      torch::nn::LayerNormOptions({config.n_embd}).eps(config.layer_norm_epsilon));
}

// A linear layer whose weight is [in, out], as GPT-2's have been stored since its first release.
class Conv1DImpl : public torch::nn::Module {
 public:
  Conv1DImpl(int64_t in, int64_t out, double std)
      : weight_(register_parameter("weight", DrawNormal({in, out}, std))),
        bias_(register_parameter("bias", at::zeros({out}))) {}

  // [B, T, in] -> [B, T, out]
  at::Tensor forward(const at::Tensor& x) { return ApplyConv1D(x, weight_, bias_); }

  // GELU of it; and its columns in three equal parts.
  at::Tensor ForwardAndGelu(const at::Tensor& x) { return ApplyConv1DAndGelu(x, weight_, bias_); }
  std::array<at::Tensor, 3> ForwardInThirds(const at::Tensor& x) {
    return ApplyConv1DInThirds(x, weight_, bias_);
  }

 private:
  at::Tensor weight_, bias_;
};
TORCH_MODULE(Conv1D);

class AttentionImpl : public torch::nn::Module {
 public:
  explicit AttentionImpl(const Gpt2Config& config)
      : n_head_(config.n_head),
        attn_pdrop_(config.attn_pdrop),
        resid_pdrop_(config.resid_pdrop),
        c_attn_(register_module(
            "c_attn", Conv1D(config.n_embd, 3 * config.n_embd, config.initializer_range))),
        c_proj_(register_module("c_proj",
                                Conv1D(config.n_embd, config.n_embd, ProjectionStd(config)))) {}

  at::Tensor forward(const at::Tensor& x) {
    const int64_t width = x.size(2);
    const auto heads = [&](const at::Tensor& part) {  // [B, T, C] -> [B, heads, T, C / heads]
      return part.view({x.size(0), x.size(1), n_head_, width / n_head_}).transpose(1, 2);
    };
    const auto [query, key, value] = c_attn_->ForwardInThirds(x);
    const at::Tensor mixed =
        at::scaled_dot_product_attention(heads(query), heads(key), heads(value), /*attn_mask=*/{},
                                         is_training() ? attn_pdrop_ : 0.0, /*is_causal=*/true);
    return at::dropout(c_proj_(mixed.transpose(1, 2).flatten(2)), resid_pdrop_, is_training());
  }

 private:
  int64_t n_head_;
  double attn_pdrop_, resid_pdrop_;
  Conv1D c_attn_, c_proj_;
};
TORCH_MODULE(Attention);

class FeedForwardImpl : public torch::nn::Module {
 public:
  FeedForwardImpl(const Gpt2Config& config, int64_t inner)
      : resid_pdrop_(config.resid_pdrop),
        c_fc_(register_module("c_fc", Conv1D(config.n_embd, inner, config.initializer_range))),
        c_proj_(register_module("c_proj", Conv1D(inner, config.n_embd, ProjectionStd(config)))) {}

  at::Tensor forward(const at::Tensor& x) {
    return at::dropout(c_proj_(c_fc_->ForwardAndGelu(x)), resid_pdrop_, is_training());
  }

 private:
  double resid_pdrop_;
  Conv1D c_fc_, c_proj_;
};
TORCH_MODULE(FeedForward);

class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const Gpt2Config& config)
      : ln_1_(register_module("ln_1", Norm(config))),
        attn_(register_module("attn", Attention(config))),
        ln_2_(register_module("ln_2", Norm(config))),
        mlp_(register_module("mlp",
                             FeedForward(config, config.n_inner.value_or(4 * config.n_embd)))) {}

  at::Tensor forward(const at::Tensor& x) {
    const auto [input, first] = AddAndNormalize(ln_1_, x);
    const auto [attended, second] = AddAndNormalize(ln_2_, input, attn_(first));
    return attended + mlp_(second);
  }

 private:
  torch::nn::LayerNorm ln_1_;
  Attention attn_;
  torch::nn::LayerNorm ln_2_;
  FeedForward mlp_;
};

const Gpt2Config& Checked(const Gpt2Config& config, const std::vector<int64_t>& input_shape) {
  if (config.n_embd % config.n_head != 0) {
    RefuseInput("model.n_embd is " + std::to_string(config.n_embd) +
                ", which is not a multiple of model.n_head, " + std::to_string(config.n_head));
  }
  if (input_shape.size() != 1) {
    RefuseInput(
        "model.type gpt2 takes text, but the data is images; use data of type tokens or text");
  }
  if (input_shape[0] > config.n_positions) {
    RefuseInput("the samples have " + std::to_string(input_shape[0]) +
                " tokens, more than model.n_positions, " + std::to_string(config.n_positions) +
                "; lower data.block_size");
  }
  return config;
}

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

 private:
  Gpt2Transformer transformer_;
};

Gpt2TransformerImpl::Gpt2TransformerImpl(const Gpt2Config& config)
    : n_positions_(config.n_positions),
      embd_pdrop_(config.embd_pdrop),
      wte_(register_module("wte", Embedding(config.vocab_size, config))),
      wpe_(register_module("wpe", Embedding(config.n_positions, config))),
      h_(register_module("h", torch::nn::ModuleList())),
      ln_f_(register_module("ln_f", Norm(config))) {
  for (int64_t i = 0; i < config.n_layer; ++i) h_->push_back(std::make_shared<BlockImpl>(config));
}

// int64 [B, T], T at most n_positions -> [B, T, n_embd]
at::Tensor Gpt2TransformerImpl::Embed(const at::Tensor& tokens) {
  if (tokens.dim() != 2 || tokens.scalar_type() != at::kLong) {
    RefuseInput("model.type gpt2 takes token ids; use data of type tokens or text");
  }
  if (tokens.size(1) > n_positions_) {
    RefuseInput("gpt2 was given " + std::to_string(tokens.size(1)) +
                " tokens, more than model.n_positions, " + std::to_string(n_positions_));
  }
  const at::Tensor positions = wpe_->weight.slice(0, 0, tokens.size(1));
  return at::dropout(wte_(tokens) + positions, embd_pdrop_, is_training());
}

std::vector<ModelLayer> Gpt2TransformerImpl::Layers() {
  std::vector<ModelLayer> layers;
  layers.push_back({"embedding", {wte_.ptr(), wpe_.ptr()}, [this](const at::Tensor& tokens) {
                      return Embed(tokens);
                    }});
  for (size_t i = 0; i < h_->size(); ++i) {
    const auto block = h_->ptr<BlockImpl>(i);
    layers.push_back({"transformer.h." + std::to_string(i), {block}, [block](const at::Tensor& x) {
                        return block->forward(x);
                      }});
  }
  layers.push_back({"head", {ln_f_.ptr(), wte_.ptr()}, [this](const at::Tensor& x) {
                      return ApplyLinear(ApplyLayerNorm(ln_f_, x), wte_->weight);
                    }});
  return layers;
}

Gpt2::Gpt2(const Gpt2Config& config, const std::vector<int64_t>& input_shape)
    : transformer_(register_module("transformer", Gpt2Transformer(Checked(config, input_shape)))) {}

at::Tensor Gpt2::Loss(const at::Tensor& output, const at::Tensor& targets,
                      int64_t reduction) const {
  return CrossEntropyOfLogits(output, targets, reduction);
}

at::Tensor Gpt2::forward(const at::Tensor& tokens) { return RunLayers(Layers(), tokens); }

}  // namespace

std::shared_ptr<Model> MakeGpt2(const ModelConfig& config, const std::vector<int64_t>& input_shape,
                                const TensorParallel&) {
  return std::make_shared<Gpt2>(config.As<Gpt2Config>(), input_shape);
}

}  // namespace dslaunch

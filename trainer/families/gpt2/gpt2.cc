// Implements GPT-2 with Hugging Face's parameter names and layout (GPT2LMHeadModel).
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "trainer/base/train_error.h"
#include "trainer/families/gpt2/gpt2_config.h"
#include "trainer/nn/causal_attention.h"
#include "trainer/nn/documents.h"
#include "trainer/nn/key_value_cache.h"
#include "trainer/nn/layer_norm.h"
#include "trainer/nn/lora/lora.h"
#include "trainer/nn/run_layers.h"
#include "trainer/nn/split_backward.h"
#include "trainer/nn/tensor_parallel/divided_module.h"
#include "trainer/nn/tensor_parallel/exchanges.h"
#include "trainer/nn/tensor_parallel/region_seed.h"
#include "trainer/nn/tensor_parallel/tensor_parallel.h"
#include "trainer/nn/tensor_parallel/vocabulary.h"

namespace dslaunch {
namespace {

at::Tensor DrawNormal(at::IntArrayRef shape, double std) {
  return at::empty(shape).normal_(0, std);
}

double ProjectionStd(const Gpt2Config& config) {
  return config.initializer_range / std::sqrt(2 * static_cast<double>(config.n_layer));
}

// An embedding table with all rows, or with only this rank's rows.
class EmbeddingImpl : public DividedModule {
 public:
  EmbeddingImpl(int64_t rows, const Gpt2Config& config, const TensorParallel& tensor)
      : weight(RegisterPart("weight", DrawNormal({rows, config.n_embd}, config.initializer_range),
                            EqualCut(tensor, 0, rows))) {}

  at::Tensor weight;
};
TORCH_MODULE(Embedding);

torch::nn::LayerNorm Norm(const Gpt2Config& config) {
  return torch::nn::LayerNorm(
      torch::nn::LayerNormOptions({config.n_embd}).eps(config.layer_norm_epsilon));
}

LayerNormWeights WeightsOf(const torch::nn::LayerNorm& norm, const TensorParallel& tensor) {
  LayerNormWeights weights(norm);
  weights.weight = OutsideRegions(weights.weight, tensor);
  weights.bias = OutsideRegions(weights.bias, tensor);
  return weights;
}

// A linear layer whose weight is [in, out], which is how weights of GPT-2 have been stored since
// its first release.
class Conv1DImpl : public AdaptableLinear {
 public:
  // Makes a layer whose outputs are divided over `tensor`. The outputs consist of `blocks` layers
  // side by side, each of which is divided into equal parts.
  Conv1DImpl(int64_t in, int64_t out, double std, int64_t blocks, const TensorParallel& tensor)
      : AdaptableLinear(
            in, out,
            {.tensor = tensor, .outputs = EqualCut(tensor, 1, out, blocks), .inputs = {}}) {
    weight_ = RegisterPart("weight", DrawNormal({in, out}, std), division().outputs);
    bias_ = RegisterPart("bias", at::zeros({out}), EqualCut(tensor, 0, out, blocks));
  }

  // Return the output of the layer: ForwardAndGelu() after a GELU, ForwardInThirds() as three equal
  // parts of the columns.
  at::Tensor ForwardAndGelu(const at::Tensor& x) {
    if (has_adapter()) return at::gelu(Product(x), "tanh");
    return ApplyConv1DAndGelu(x, weight_, bias_);
  }
  std::array<at::Tensor, 3> ForwardInThirds(const at::Tensor& x) {
    if (!has_adapter()) return ApplyConv1DInThirds(x, weight_, bias_);
    const std::vector<at::Tensor> thirds = Product(x).chunk(3, -1);
    return {thirds[0], thirds[1], thirds[2]};
  }

 private:
  at::Tensor Product(const at::Tensor& x) { return Adapted(ApplyConv1D(x, weight_, bias_), x); }

  at::Tensor weight_, bias_;
};
TORCH_MODULE(Conv1D);

// A linear layer whose inputs are divided over the ranks of a tensor-parallel group.
class ProjectionImpl : public AdaptableLinear {
 public:
  ProjectionImpl(int64_t in, int64_t out, double std, const TensorParallel& tensor)
      : AdaptableLinear(in, out,
                        {.tensor = tensor, .outputs = {}, .inputs = EqualCut(tensor, 0, in)}),
        weight_(RegisterPart("weight", DrawNormal({in, out}, std), division().inputs)),
        bias_(register_parameter("bias", at::zeros({out}))) {}

  // Maps [B, T, in] to [B, T, out]. The result is divided like the result of LeaveRegion.
  at::Tensor forward(const at::Tensor& x) {
    if (!division().inputs) return Adapted(ApplyConv1D(x, weight_, bias_), x);
    return LeaveRegionAndAdd(Adapted(ApplyConv1D(x, weight_, {}), x), bias_, division().tensor);
  }

 private:
  at::Tensor weight_, bias_;
};
TORCH_MODULE(Projection);

class AttentionImpl : public torch::nn::Module {
 public:
  // Makes the attention of layer `layer`, counted from 0. All layers of the model share `cache` and
  // `documents`.
  AttentionImpl(const Gpt2Config& config, const TensorParallel& tensor, int64_t layer,
                std::shared_ptr<KeyValueCache*> cache, std::shared_ptr<Documents> documents)
      : tensor_(tensor),
        documents_(std::move(documents)),
        layer_(layer),
        cache_(std::move(cache)),
        n_head_(config.n_head / tensor.parts),
        attn_pdrop_(config.attn_pdrop),
        resid_pdrop_(config.resid_pdrop),
        c_attn_(register_module("c_attn", Conv1D(config.n_embd, 3 * config.n_embd,
                                                 config.initializer_range, 3, tensor))),
        c_proj_(register_module(
            "c_proj", Projection(config.n_embd, config.n_embd, ProjectionStd(config), tensor))) {}

  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor x = EnterRegion(input, tensor_);
    const int64_t width = x.size(2) / tensor_.parts;
    // Reshapes [B, T, C] to [B, T, heads, C / heads].
    const auto heads = [&](const at::Tensor& part) {
      return part.view({x.size(0), x.size(1), n_head_, width / n_head_});
    };
    const auto [query, key, value] = c_attn_->ForwardInThirds(x);
    return DropoutOutsideRegions(c_proj_(Mix(heads(query), heads(key), heads(value))), resid_pdrop_,
                                 is_training(), tensor_);
  }

 private:
  // Returns the attention output, [B, T, C], for tensors of shape [B, T, heads, C / heads].
  at::Tensor Mix(const at::Tensor& query, at::Tensor key, at::Tensor value) const {
    const double dropout = is_training() ? attn_pdrop_ : 0.0;
    const RegionSeed seed(tensor_, query.device(), dropout > 0);
    if (documents_->several()) return documents_->Attend(query, key, value, dropout).flatten(2);
    std::optional<at::Tensor> mask;
    const auto seen = *cache_ == nullptr
                          ? std::nullopt
                          : (*cache_)->Extend(layer_, /*window=*/std::nullopt, key, value);
    if (seen) std::tie(key, value, mask) = std::tie(seen->keys, seen->values, seen->mask);
    return GroupedAttention(query, key, value, mask, dropout, /*is_causal=*/!seen).flatten(2);
  }

  const TensorParallel tensor_;
  std::shared_ptr<Documents> documents_;
  int64_t layer_;
  std::shared_ptr<KeyValueCache*> cache_;
  int64_t n_head_;  // number of attention heads on this rank
  double attn_pdrop_, resid_pdrop_;
  Conv1D c_attn_;
  Projection c_proj_;
};
TORCH_MODULE(Attention);

class FeedForwardImpl : public torch::nn::Module {
 public:
  FeedForwardImpl(const Gpt2Config& config, const TensorParallel& tensor)
      : tensor_(tensor),
        resid_pdrop_(config.resid_pdrop),
        c_fc_(register_module(
            "c_fc", Conv1D(config.n_embd, config.inner(), config.initializer_range, 1, tensor))),
        c_proj_(register_module(
            "c_proj", Projection(config.inner(), config.n_embd, ProjectionStd(config), tensor))) {}

  at::Tensor forward(const at::Tensor& x) {
    return DropoutOutsideRegions(c_proj_(c_fc_->ForwardAndGelu(EnterRegion(x, tensor_))),
                                 resid_pdrop_, is_training(), tensor_);
  }

 private:
  const TensorParallel tensor_;
  double resid_pdrop_;
  Conv1D c_fc_;
  Projection c_proj_;
};
TORCH_MODULE(FeedForward);

class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(const Gpt2Config& config, const TensorParallel& tensor, int64_t layer,
            std::shared_ptr<KeyValueCache*> cache, std::shared_ptr<Documents> documents)
      : tensor_(tensor),
        ln_1_(register_module("ln_1", Norm(config))),
        attn_(register_module(
            "attn", Attention(config, tensor, layer, std::move(cache), std::move(documents)))),
        ln_2_(register_module("ln_2", Norm(config))),
        mlp_(register_module("mlp", FeedForward(config, tensor))) {}

  at::Tensor forward(const at::Tensor& x) {
    const auto [input, first] = AddAndNormalize(WeightsOf(ln_1_, tensor_), x);
    const auto [attended, second] = AddAndNormalize(WeightsOf(ln_2_, tensor_), input, attn_(first));
    return attended + mlp_(second);
  }

 private:
  const TensorParallel tensor_;
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

// The whole model. The output head shares the weight of the embedding wte.
class Gpt2TransformerImpl : public torch::nn::Module {
 public:
  Gpt2TransformerImpl(const Gpt2Config& config, const TensorParallel& tensor,
                      std::shared_ptr<KeyValueCache*> cache);
  // Returns the layers: the embedding, each block, and the head with the norm before it.
  std::vector<ModelLayer> Layers();

 private:
  at::Tensor Embed(const at::Tensor& tokens);

  // Returns the embeddings of the positions: [T, n_embd], or with sequence parallelism this rank's
  // part of that tensor; [B, 1, n_embd] in later passes of a cache.
  at::Tensor Positions(int64_t length);

  const TensorParallel tensor_;
  std::shared_ptr<KeyValueCache*> cache_;
  const bool separates_documents_;
  std::shared_ptr<Documents> documents_ = std::make_shared<Documents>();
  int64_t vocab_size_, n_positions_;
  double embd_pdrop_;
  Embedding wte_, wpe_;
  torch::nn::ModuleList h_;
  torch::nn::LayerNorm ln_f_;
};
TORCH_MODULE(Gpt2Transformer);

// GPT-2 with its output head. The weights of each matrix are drawn once, in the order of
// parameters(), from normal(0, initializer_range). For the two c_proj of each block, this standard
// deviation is divided by sqrt(2 n_layer). Norms and biases draw no random numbers.
class Gpt2 : public LanguageModel, public CachingModel {
 public:
  // Makes a model for texts of `input_shape`, [T], with T at most n_positions.
  Gpt2(const Gpt2Config& config, const std::vector<int64_t>& input_shape,
       const TensorParallel& tensor)
      : LanguageModel(config.vocab_size, tensor),
        transformer_(register_module(
            "transformer", Gpt2Transformer(Checked(config, input_shape), tensor, cache_in_use()))),
        n_layer_(config.n_layer),
        n_embd_(config.n_embd) {}
  // Maps tokens, int64 [B, T] with T at most n_positions, to logits [B, T, vocab_size], or to the
  // logits of this rank's part of the vocabulary.
  at::Tensor forward(const at::Tensor& tokens) override { return RunLayers(Layers(), tokens); }
  std::vector<ModelLayer> Layers() override { return transformer_->Layers(); }
  // Returns the layers of a key-value cache, with the sizes of this rank's heads. Empty with
  // sequence parallelism, because a pass over one token cannot be divided.
  std::vector<CachedLayer> CachedLayers() const override {
    if (tensor().divides_tokens()) return {};
    return {static_cast<size_t>(n_layer_),
            CachedLayer{2 * n_embd_ / tensor().parts, /*window=*/std::nullopt}};
  }

 private:
  Gpt2Transformer transformer_;
  int64_t n_layer_, n_embd_;
};

Gpt2TransformerImpl::Gpt2TransformerImpl(const Gpt2Config& config, const TensorParallel& tensor,
                                         std::shared_ptr<KeyValueCache*> cache)
    : tensor_(tensor),
      cache_(std::move(cache)),
      separates_documents_(config.separates_documents),
      vocab_size_(config.vocab_size),
      n_positions_(config.n_positions),
      embd_pdrop_(config.embd_pdrop),
      wte_(register_module("wte", Embedding(config.vocab_size, config, tensor))),
      wpe_(register_module("wpe", Embedding(config.n_positions, config, TensorParallel()))),
      h_(register_module("h", torch::nn::ModuleList())),
      ln_f_(register_module("ln_f", Norm(config))) {
  for (int64_t i = 0; i < config.n_layer; ++i) {
    h_->push_back(std::make_shared<BlockImpl>(config, tensor, i, cache_, documents_));
  }
}

// Maps tokens, int64 [B, T] with T at most n_positions, to [B, T, n_embd]. The result is divided
// like the result of LeaveRegion.
at::Tensor Gpt2TransformerImpl::Embed(const at::Tensor& tokens) {
  if (tokens.dim() != 2 || tokens.scalar_type() != at::kLong) {
    RefuseInput("model.type gpt2 takes token ids; use data of type tokens or text");
  }
  if (tokens.size(1) > n_positions_) {
    RefuseInput("gpt2 was given " + std::to_string(tokens.size(1)) +
                " tokens, more than model.n_positions, " + std::to_string(n_positions_));
  }
  const at::Tensor ids = separates_documents_ ? documents_->Divide(tokens) : tokens;
  const at::Tensor embeddings = EmbedTokens(ids, wte_->weight, vocab_size_, -1, tensor_);
  return DropoutOutsideRegions(embeddings + Positions(embeddings.size(1)), embd_pdrop_,
                               is_training(), tensor_);
}

at::Tensor Gpt2TransformerImpl::Positions(int64_t length) {
  const at::Tensor weight = OutsideRegions(wpe_->weight, tensor_);
  if (*cache_ != nullptr && !(*cache_)->in_first_pass()) {
    return at::embedding(weight, (*cache_)->last_positions()).unsqueeze(1);
  }
  const int64_t first = tensor_.divides_tokens() ? tensor_.part * length : 0;
  if (!documents_->several()) return weight.slice(0, first, first + length);
  return at::embedding(weight, documents_->positions().slice(1, first, first + length));
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
                      const at::Tensor wanted = *cache_ == nullptr ? x : (*cache_)->LastTokens(x);
                      return ApplyLinear(
                          EnterRegion(ApplyLayerNorm(WeightsOf(ln_f_, tensor_), wanted), tensor_),
                          wte_->weight);
                    }});
  return layers;
}

}  // namespace

std::shared_ptr<Model> MakeGpt2(const ModelConfig& config, const std::vector<int64_t>& input_shape,
                                const TensorParallel& tensor) {
  return std::make_shared<Gpt2>(config.As<Gpt2Config>(), input_shape, tensor);
}

}  // namespace dslaunch

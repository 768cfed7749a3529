// Implements dense decoders with Hugging Face's parameter names and layout: LlamaForCausalLM,
// MistralForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM.
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <utility>
#include <vector>

#include "trainer/base/train_error.h"
#include "trainer/families/decoder/attention.h"
#include "trainer/families/decoder/decoder_config.h"
#include "trainer/families/decoder/layers.h"
#include "trainer/families/decoder/positions.h"
#include "trainer/nn/documents.h"
#include "trainer/nn/key_value_cache.h"
#include "trainer/nn/run_layers.h"
#include "trainer/nn/split_backward.h"
#include "trainer/nn/swiglu.h"
#include "trainer/nn/tensor_parallel/exchanges.h"
#include "trainer/nn/tensor_parallel/tensor_parallel.h"
#include "trainer/nn/tensor_parallel/vocabulary.h"

namespace dslaunch {
namespace decoder {
namespace {

// Returns a norm of hidden states outside of the layers that are divided over `tensor`.
Norm HiddenNorm(const DecoderConfig& config, const TensorParallel& tensor) {
  return Norm(config, config.hidden_size, tensor, /*is_partial=*/tensor.divides_tokens());
}

class FeedForwardImpl : public torch::nn::Module {
 public:
  FeedForwardImpl(const DecoderConfig& config, const TensorParallel& tensor) : tensor_(tensor) {
    const int64_t width = config.hidden_size, inner = config.intermediate_size;
    const auto linear = [&](const char* name, int64_t in, int64_t out, Divided divided) {
      return register_module(name, Linear(config, in, out, config.mlp_bias, divided, tensor));
    };
    gate_proj_ = linear("gate_proj", width, inner, Divided::kOutputs);
    up_proj_ = linear("up_proj", width, inner, Divided::kOutputs);
    down_proj_ = linear("down_proj", inner, width, Divided::kInputs);
  }
  at::Tensor forward(const at::Tensor& input) {
    const at::Tensor x = EnterRegion(input, tensor_);
    return down_proj_(ApplySwiGlu(gate_proj_(x), up_proj_(x)));
  }

 private:
  const TensorParallel tensor_;
  Linear gate_proj_{nullptr}, up_proj_{nullptr}, down_proj_{nullptr};
};
TORCH_MODULE(FeedForward);

class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(const DecoderConfig& config, int64_t layer, std::shared_ptr<Positions> positions,
            std::shared_ptr<Documents> documents, const TensorParallel& tensor)
      : self_attn_(register_module("self_attn", Attention(config, layer, std::move(positions),
                                                          std::move(documents), tensor))),
        mlp_(register_module("mlp", FeedForward(config, tensor))),
        input_layernorm_(register_module("input_layernorm", HiddenNorm(config, tensor))),
        post_attention_layernorm_(
            register_module("post_attention_layernorm", HiddenNorm(config, tensor))) {}

  at::Tensor forward(const at::Tensor& x) {
    const auto [input, first] = input_layernorm_->Add(x);
    const auto [attended, second] = post_attention_layernorm_->Add(input, self_attn_(first));
    return attended + mlp_(second);
  }

 private:
  Attention self_attn_;
  FeedForward mlp_;
  Norm input_layernorm_, post_attention_layernorm_;
};

// The model without its output head.
class BodyImpl : public torch::nn::Module {
 public:
  BodyImpl(const DecoderConfig& config, const TensorParallel& tensor,
           std::shared_ptr<KeyValueCache*> cache)
      : BodyImpl(config, tensor, std::move(cache), std::make_shared<Documents>()) {}
  BodyImpl(const DecoderConfig& config, const TensorParallel& tensor,
           std::shared_ptr<KeyValueCache*> cache, const std::shared_ptr<Documents>& documents)
      : embed_tokens(register_module("embed_tokens", TokenEmbedding(config, documents, tensor))),
        layers(register_module("layers", torch::nn::ModuleList())) {
    positions =
        std::make_shared<Positions>(config.rotary, config.width_of_head(), std::move(cache));
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
      layers->push_back(std::make_shared<BlockImpl>(config, i, positions, documents, tensor));
    }
    norm = register_module("norm", HiddenNorm(config, tensor));
  }

  TokenEmbedding embed_tokens;
  torch::nn::ModuleList layers;
  Norm norm{nullptr};
  std::shared_ptr<Positions> positions;
};
TORCH_MODULE(Body);

const DecoderConfig& Checked(const DecoderConfig& config, const std::vector<int64_t>& input_shape) {
  if (input_shape.size() != 1) {
    RefuseInput(
        "model.type decoder takes text, but the data is images; use data of type tokens or text");
  }
  if (input_shape[0] > config.max_position_embeddings) {
    RefuseInput("the samples have " + std::to_string(input_shape[0]) +
                " tokens, more than model.max_position_embeddings, " +
                std::to_string(config.max_position_embeddings) + "; lower data.block_size");
  }
  return config;
}

// Returns the layers of a key-value cache, with the sizes of this rank's heads. Empty with sequence
// parallelism, because a pass over one token cannot be divided.
std::vector<CachedLayer> LayersToCache(const DecoderConfig& config, const TensorParallel& tensor) {
  std::vector<CachedLayer> layers;
  if (tensor.divides_tokens()) return layers;
  const int64_t heads = (config.kv_heads() + tensor.parts - 1) / tensor.parts;
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers.push_back({2 * heads * config.width_of_head(), config.WindowOf(i)});
  }
  return layers;
}

// The decoder with its output head. The weights of each matrix are drawn once from normal(0,
// initializer_range), in the order of parameters(). Norms and biases draw no random numbers.
class Decoder : public LanguageModel, public CachingModel {
 public:
  // Makes a model for texts of `input_shape`, [T], with T at most max_position_embeddings.
  Decoder(const DecoderConfig& config, const std::vector<int64_t>& input_shape,
          const TensorParallel& tensor)
      : LanguageModel(config.vocab_size, tensor),
        model_(
            register_module("model", Body(Checked(config, input_shape), tensor, cache_in_use()))),
        cached_layers_(LayersToCache(config, tensor)) {
    if (config.tie_word_embeddings) return;
    lm_head_ = register_module("lm_head", Linear(config, config.hidden_size, config.vocab_size,
                                                 /*bias=*/false, Divided::kOutputs, tensor));
  }

  // Maps tokens, int64 [B, T], to logits [B, T, vocab_size], or to the logits of this rank's part
  // of the vocabulary.
  at::Tensor forward(const at::Tensor& tokens) override { return RunLayers(Layers(), tokens); }

  std::vector<CachedLayer> CachedLayers() const override { return cached_layers_; }

  // Returns the layers: the embedding, each block, and the head with the norm before it.
  std::vector<ModelLayer> Layers() override {
    std::vector<ModelLayer> layers;
    const auto embedding = model_->embed_tokens.ptr();
    layers.push_back({"embedding", {embedding}, [embedding](const at::Tensor& tokens) {
                        return embedding->forward(tokens);
                      }});
    for (size_t i = 0; i < model_->layers->size(); ++i) {
      const auto block = model_->layers->ptr<BlockImpl>(i);
      layers.push_back({"model.layers." + std::to_string(i), {block}, [block](const at::Tensor& x) {
                          return block->forward(x);
                        }});
    }
    const auto final_norm = model_->norm.ptr();
    const auto norm = [final_norm, positions = model_->positions](const at::Tensor& x) {
      const KeyValueCache* const cache = positions->cache();
      return final_norm->forward(cache == nullptr ? x : cache->LastTokens(x));
    };
    if (lm_head_) {
      const auto head = lm_head_.ptr();
      layers.push_back({"head", {final_norm, head}, [this, norm, head](const at::Tensor& x) {
                          return head->forward(EnterRegion(norm(x), tensor()));
                        }});
    } else {
      layers.push_back(
          {"head", {final_norm, embedding}, [this, norm, embedding](const at::Tensor& x) {
             return ApplyLinear(EnterRegion(norm(x), tensor()), embedding->weight);
           }});
    }
    return layers;
  }

 private:
  Body model_;
  std::vector<CachedLayer> cached_layers_;
  Linear lm_head_{nullptr};  // null if the embedding's weight is also the head's
};

}  // namespace
}  // namespace decoder

std::shared_ptr<Model> MakeDecoder(const ModelConfig& config,
                                   const std::vector<int64_t>& input_shape,
                                   const TensorParallel& tensor) {
  return std::make_shared<decoder::Decoder>(config.As<DecoderConfig>(), input_shape, tensor);
}

}  // namespace dslaunch

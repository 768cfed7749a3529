// Dense decoders with Hugging Face's names and layout: LlamaForCausalLM, MistralForCausalLM,
// Qwen2ForCausalLM and Qwen3ForCausalLM.
#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <vector>

#include "dslaunch/model.h"
#include "trainer/base/train_error.h"
#include "trainer/families/decoder/attention.h"
#include "trainer/families/decoder/decoder_config.h"
#include "trainer/families/decoder/layers.h"
#include "trainer/families/decoder/positions.h"
#include "trainer/nn/cross_entropy.h"
#include "trainer/nn/run_layers.h"
#include "trainer/nn/split_backward.h"
#include "trainer/nn/tensor_parallel/tensor_parallel.h"

namespace dslaunch {
namespace decoder {
namespace {

class FeedForwardImpl : public torch::nn::Module {
 public:
  explicit FeedForwardImpl(const DecoderConfig& config) {
    const int64_t width = config.hidden_size, inner = config.intermediate_size;
    const bool bias = config.mlp_bias;
    gate_proj_ = register_module("gate_proj", Linear(config, width, inner, bias));
    up_proj_ = register_module("up_proj", Linear(config, width, inner, bias));
    down_proj_ = register_module("down_proj", Linear(config, inner, width, bias));
  }
  at::Tensor forward(const at::Tensor& x) {
    return down_proj_(at::silu(gate_proj_(x)) * up_proj_(x));
  }

 private:
  Linear gate_proj_{nullptr}, up_proj_{nullptr}, down_proj_{nullptr};
};
TORCH_MODULE(FeedForward);

class BlockImpl : public torch::nn::Module {
 public:
  BlockImpl(const DecoderConfig& config, int64_t layer, std::shared_ptr<Positions> positions)
      : self_attn_(register_module("self_attn", Attention(config, layer, std::move(positions)))),
        mlp_(register_module("mlp", FeedForward(config))),
        input_layernorm_(register_module("input_layernorm", Norm(config, config.hidden_size))),
        post_attention_layernorm_(
            register_module("post_attention_layernorm", Norm(config, config.hidden_size))) {}

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor attended = x + self_attn_(input_layernorm_(x));
    return attended + mlp_(post_attention_layernorm_(attended));
  }

 private:
  Attention self_attn_;
  FeedForward mlp_;
  Norm input_layernorm_, post_attention_layernorm_;
};

// All but the head.
class BodyImpl : public torch::nn::Module {
 public:
  explicit BodyImpl(const DecoderConfig& config)
      : embed_tokens(register_module("embed_tokens", TokenEmbedding(config))),
        layers(register_module("layers", torch::nn::ModuleList())) {
    const auto positions = std::make_shared<Positions>(config.rotary, config.width_of_head());
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
      layers->push_back(std::make_shared<BlockImpl>(config, i, positions));
    }
    norm = register_module("norm", Norm(config, config.hidden_size));
  }

  TokenEmbedding embed_tokens;
  torch::nn::ModuleList layers;
  Norm norm{nullptr};
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

// Each matrix is drawn once, normal(0, initializer_range), in the order of parameters(). Norms and
// biases draw nothing.
class Decoder : public Model {
 public:
  // input_shape: {T}, at most max_position_embeddings tokens.
  Decoder(const DecoderConfig& config, const std::vector<int64_t>& input_shape)
      : model_(register_module("model", Body(Checked(config, input_shape)))) {
    if (config.tie_word_embeddings) return;
    lm_head_ = register_module(
        "lm_head", Linear(config, config.hidden_size, config.vocab_size, /*bias=*/false));
  }

  // int64 [B, T] -> logits [B, T, vocab_size]
  at::Tensor forward(const at::Tensor& tokens) override { return RunLayers(Layers(), tokens); }

  at::Tensor Loss(const at::Tensor& output, const at::Tensor& targets,
                  int64_t reduction) const override {
    return CrossEntropyOfLogits(output, targets, reduction);
  }

  // The embedding, each block, and the head with the norm before it.
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
    const auto norm = model_->norm.ptr();
    if (lm_head_) {
      const auto head = lm_head_.ptr();
      layers.push_back({"head", {norm, head}, [norm, head](const at::Tensor& x) {
                          return head->forward(norm->forward(x));
                        }});
    } else {
      layers.push_back({"head", {norm, embedding}, [norm, embedding](const at::Tensor& x) {
                          return ApplyLinear(norm->forward(x), embedding->weight);
                        }});
    }
    return layers;
  }

 private:
  Body model_;
  Linear lm_head_{nullptr};  // unless it is the embedding
};

}  // namespace
}  // namespace decoder

std::shared_ptr<Model> MakeDecoder(const ModelConfig& config,
                                   const std::vector<int64_t>& input_shape, const TensorParallel&) {
  return std::make_shared<decoder::Decoder>(config.As<DecoderConfig>(), input_shape);
}

}  // namespace dslaunch

#include "trainer/weights/huggingface_config.h"

#include <nlohmann/json.hpp>

#include "trainer/config/json_object.h"
#include "trainer/weights/json_file.h"

namespace dslaunch {
namespace {

using nlohmann::json;

// GPT-2's end of text, with which transformers begins and ends texts by default.
constexpr int64_t kEndOfText = 50256;

struct ConfigJson {
  const std::string& dtype;

  json operator()(const MlpConfig& mlp) const {
    return {{"hidden_size", mlp.hidden_size}, {"num_classes", mlp.num_classes}};
  }
  json operator()(const CnnConfig& cnn) const {
    return {{"hidden_size", cnn.hidden_size}, {"num_classes", cnn.num_classes}};
  }
  json operator()(const Resnet18Config& resnet18) const {
    return {{"num_classes", resnet18.num_classes}};
  }
  json operator()(const PluginConfig& plugin) const {
    return {{"path", plugin.path}, {"params", ParseJson(plugin.params, "model.params")}};
  }
  json operator()(const Gpt2Config& gpt2) const {
    const json end_of_text = gpt2.vocab_size > kEndOfText ? json(kEndOfText) : json(nullptr);
    return {{"model_type", "gpt2"},
            {"architectures", {"GPT2LMHeadModel"}},
            {"activation_function", "gelu_new"},
            {"vocab_size", gpt2.vocab_size},
            {"n_positions", gpt2.n_positions},
            {"n_embd", gpt2.n_embd},
            {"n_layer", gpt2.n_layer},
            {"n_head", gpt2.n_head},
            {"n_inner", gpt2.n_inner ? json(*gpt2.n_inner) : json(nullptr)},
            {"resid_pdrop", gpt2.resid_pdrop},
            {"embd_pdrop", gpt2.embd_pdrop},
            {"attn_pdrop", gpt2.attn_pdrop},
            {"layer_norm_epsilon", gpt2.layer_norm_epsilon},
            {"initializer_range", gpt2.initializer_range},
            {"scale_attn_weights", true},
            {"scale_attn_by_inverse_layer_idx", false},
            {"reorder_and_upcast_attn", false},
            {"tie_word_embeddings", true},
            {"use_cache", true},
            {"bos_token_id", end_of_text},
            {"eos_token_id", end_of_text},
            {"dtype", dtype}};
  }
};

}  // namespace

std::string HuggingFaceConfigText(const ModelConfig& model, const std::string& dtype) {
  json config = std::visit(ConfigJson{dtype}, model);
  if (!std::holds_alternative<Gpt2Config>(model)) config["type"] = ModelTypeName(model);
  return config.dump(2) + "\n";
}

Gpt2Config ReadHuggingFaceConfig(const std::string& folder) {
  const std::string path = folder + "/" + kHuggingFaceConfigFile;
  const json parsed = ReadJsonFile(path);
  JsonObject object(parsed, path, "");
  if (!object.Word("model_type", {"gpt2"}))
    object.Fail("model_type", "is missing; supported: gpt2");
  object.Word("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  const auto refuse_unless = [&](const char* key, bool value) {
    if (object.Bool(key).value_or(value) != value) {
      object.Fail(key,
                  value ? "is false; only true is supported" : "is true; only false is supported");
    }
  };
  refuse_unless("tie_word_embeddings", true);
  refuse_unless("scale_attn_weights", true);
  refuse_unless("scale_attn_by_inverse_layer_idx", false);
  refuse_unless("add_cross_attention", false);

  constexpr int64_t kMaxSize = int64_t{1} << 31;
  Gpt2Config config;
  config.vocab_size = object.Int("vocab_size", 1, kMaxSize).value_or(config.vocab_size);
  config.n_positions = object.Int("n_positions", 1, kMaxSize).value_or(config.n_positions);
  config.n_embd = object.Int("n_embd", 1, kMaxSize).value_or(config.n_embd);
  config.n_layer = object.Int("n_layer", 1, kMaxSize).value_or(config.n_layer);
  config.n_head = object.Int("n_head", 1, kMaxSize).value_or(config.n_head);
  config.n_inner = object.Int("n_inner", 1, kMaxSize);
  config.resid_pdrop = object.Number("resid_pdrop", 0, 1).value_or(config.resid_pdrop);
  config.embd_pdrop = object.Number("embd_pdrop", 0, 1).value_or(config.embd_pdrop);
  config.attn_pdrop = object.Number("attn_pdrop", 0, 1).value_or(config.attn_pdrop);
  config.layer_norm_epsilon =
      object.Number("layer_norm_epsilon", 0).value_or(config.layer_norm_epsilon);
  config.initializer_range =
      object.Number("initializer_range", 0).value_or(config.initializer_range);
  return config;
}

}  // namespace dslaunch

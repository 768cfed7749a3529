#include "trainer/weights/huggingface_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.h"
#include "trainer/base/train_error.h"

namespace dslaunch::huggingface_config_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(HuggingFaceConfigTest, WhatIsWrittenIsRead) {
  const Gpt2Config written{.vocab_size = 300,
                           .n_positions = 64,
                           .n_embd = 48,
                           .n_layer = 5,
                           .n_head = 6,
                           .n_inner = 100,
                           .resid_pdrop = 0.25,
                           .embd_pdrop = 0.5,
                           .attn_pdrop = 0,
                           .layer_norm_epsilon = 1e-6,
                           .initializer_range = 0.01};
  const TempDir folder;
  folder.Write(kHuggingFaceConfigFile, HuggingFaceConfigText(written, "float32"));
  const Gpt2Config read = ReadHuggingFaceConfig(folder.path());
  EXPECT_EQ(HuggingFaceConfigText(read, "float32"), HuggingFaceConfigText(written, "float32"));
  EXPECT_EQ(read.n_inner, 100);
  EXPECT_EQ(read.layer_norm_epsilon, 1e-6);
}

TEST(HuggingFaceConfigTest, EndOfTextIsATokenOfTheVocabulary) {
  EXPECT_EQ(json::parse(HuggingFaceConfigText(Gpt2Config{}, "float32"))["eos_token_id"], 50256);
  EXPECT_TRUE(
      json::parse(HuggingFaceConfigText(Gpt2Config{.vocab_size = 256, .n_inner = {}}, "float32"))
          .at("eos_token_id")
          .is_null());
}

TEST(HuggingFaceConfigTest, OtherModelsAreTheRecipesSection) {
  const auto section = [](const ModelConfig& model) {
    return json::parse(HuggingFaceConfigText(model, "float32"));
  };
  EXPECT_EQ(section(MlpConfig{64, 7}),
            json({{"type", "mlp"}, {"hidden_size", 64}, {"num_classes", 7}}));
  EXPECT_EQ(section(CnnConfig{64, 7}),
            json({{"type", "cnn"}, {"hidden_size", 64}, {"num_classes", 7}}));
  EXPECT_EQ(section(Resnet18Config{7}), json({{"type", "resnet18"}, {"num_classes", 7}}));
  EXPECT_EQ(section(PluginConfig{"/lib/mine.so", "{\"width\": 3}"}),
            json({{"type", "plugin"}, {"path", "/lib/mine.so"}, {"params", {{"width", 3}}}}));
}

TEST(HuggingFaceConfigTest, RefusesWhatIsNotComputed) {
  struct Case {
    const char* text;
    const char* words;
  };
  const Case cases[] = {
      {R"({})", "model_type is missing"},
      {R"({"model_type": "llama"})", "model_type"},
      {R"({"model_type": "gpt2", "activation_function": "relu"})", "activation_function"},
      {R"({"model_type": "gpt2", "tie_word_embeddings": false})", "tie_word_embeddings is false"},
      {R"({"model_type": "gpt2", "scale_attn_weights": false})", "scale_attn_weights is false"},
      {R"({"model_type": "gpt2", "scale_attn_by_inverse_layer_idx": true})",
       "scale_attn_by_inverse_layer_idx is true"},
      {R"({"model_type": "gpt2", "add_cross_attention": true})", "add_cross_attention is true"},
      {R"({"model_type": "gpt2", "n_head": 0})", "n_head"},
      {R"({"model_type": "gpt2", "n_head": "12"})", "n_head"},
      {R"([])", "config.json"},
      {R"({"model_type")", "not valid JSON"},
  };
  for (const Case& c : cases) {
    const TempDir folder;
    const std::string file = folder.Write(kHuggingFaceConfigFile, c.text);
    try {
      ReadHuggingFaceConfig(folder.path());
      ADD_FAILURE() << "accepted " << c.text;
    } catch (const TrainError& error) {
      EXPECT_EQ(error.code(), ExitCode::kBadInput);
      EXPECT_THAT(error.what(), HasSubstr(c.words));
      EXPECT_THAT(error.what(), HasSubstr(file));
    }
  }
}

}  // namespace
}  // namespace dslaunch::huggingface_config_test

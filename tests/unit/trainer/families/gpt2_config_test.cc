#include "trainer/families/gpt2/gpt2_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/temp_dir.h"
#include "trainer/base/train_error.h"
#include "trainer/config/json/json_object.h"
#include "trainer/families/cnn/cnn_config.h"
#include "trainer/families/mlp/mlp_config.h"
#include "trainer/families/plugin/plugin_config.h"
#include "trainer/families/resnet18/resnet18_config.h"
#include "trainer/weights/config_json.h"

namespace dslaunch::gpt2_config_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json Written(const ModelConfig& config) { return json::parse(ConfigJsonText(config, "float32")); }

TEST(Gpt2ConfigTest, ReadsConfigJsonThatItWrote) {
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
  const json config_json = Written(written);
  JsonObject object(config_json, "config.json", "");
  const ModelConfig config = Gpt2Family().ReadConfigJson(object);
  const auto& read = config.As<Gpt2Config>();
  EXPECT_EQ(Written(read), config_json);
  EXPECT_EQ(read.n_inner, 100);
  EXPECT_EQ(read.layer_norm_epsilon, 1e-6);
}

TEST(Gpt2ConfigTest, EndOfTextIsNullOutsideVocabulary) {
  EXPECT_EQ(Written(Gpt2Config{})["eos_token_id"], 50256);
  EXPECT_TRUE(Written(Gpt2Config{.vocab_size = 256, .n_inner = {}}).at("eos_token_id").is_null());
}

TEST(ConfigJsonTest, WritesRecipeSectionForOtherFamilies) {
  EXPECT_EQ(Written(MlpConfig{64, 7}),
            json({{"type", "mlp"}, {"hidden_size", 64}, {"num_classes", 7}}));
  EXPECT_EQ(Written(CnnConfig{64, 7}),
            json({{"type", "cnn"}, {"hidden_size", 64}, {"num_classes", 7}}));
  EXPECT_EQ(Written(Resnet18Config{7}), json({{"type", "resnet18"}, {"num_classes", 7}}));
  EXPECT_EQ(Written(PluginConfig{"/lib/mine.so", "{\"width\": 3}"}),
            json({{"type", "plugin"}, {"path", "/lib/mine.so"}, {"params", {{"width", 3}}}}));
}

TEST(ConfigJsonTest, RefusesOtherModelsAndVariants) {
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
    const std::string file = folder.Write(kConfigJson, c.text);
    try {
      CheckConfigJson(Gpt2Config{}, folder.path());
      ADD_FAILURE() << "accepted " << c.text;
    } catch (const TrainError& error) {
      EXPECT_EQ(error.code(), ExitCode::kBadInput);
      EXPECT_THAT(error.what(), HasSubstr(c.words));
      EXPECT_THAT(error.what(), HasSubstr(file));
    }
  }
}

}  // namespace
}  // namespace dslaunch::gpt2_config_test

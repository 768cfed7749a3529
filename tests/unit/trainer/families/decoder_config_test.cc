#include "trainer/families/decoder/decoder_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trainer/base/train_error.h"
#include "trainer/config/model_family.h"
#include "trainer/config/recipe.h"

namespace dslaunch::decoder_config_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Returns a config.json with the keys that all types need.
json Small(const char* type) {
  return {{"model_type", type},        {"vocab_size", 61},       {"hidden_size", 32},
          {"intermediate_size", 44},   {"num_hidden_layers", 3}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2},  {"head_dim", 8},          {"max_position_embeddings", 64},
          {"sliding_window", nullptr}, {"use_cache", true}};
}

json With(json object, const json& more) {
  for (const auto& [key, value] : more.items()) object[key] = value;
  return object;
}

// Returns the model that `dslaunch train` makes from a config.json.
ModelConfig FromConfigJson(const json& config_json) {
  return ParseModelSection(SectionOfConfigJson(config_json.dump(), "config.json"), "recipe");
}

DecoderConfig Read(const json& config_json) {
  return FromConfigJson(config_json).As<DecoderConfig>();
}

template <class Call>
std::string Refusal(const Call& call) {
  try {
    call();
    return "";
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    return error.what();
  }
}

TEST(DecoderConfigTest, ReadsAllFormsOfRopeKeys) {
  const json forms[] = {
      {{"rope_parameters", {{"rope_type", "linear"}, {"rope_theta", 500.0}, {"factor", 4}}}},
      {{"rope_theta", 500}, {"rope_scaling", {{"rope_type", "linear"}, {"factor", 4}}}},
      {{"rope_theta", 500}, {"rope_scaling", {{"type", "linear"}, {"factor", 4}}}},
      {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 7}}},
       {"rope_theta", 500},
       {"rope_scaling", {{"type", "linear"}, {"factor", 4}}}}};
  for (const json& form : forms) {
    SCOPED_TRACE(form.dump());
    const RotaryConfig rotary = Read(With(Small("llama"), form)).rotary;
    EXPECT_EQ(rotary.type, RotaryConfig::Type::kLinear);
    EXPECT_EQ(rotary.theta, 500);
    EXPECT_EQ(rotary.factor, 4);
  }
  const RotaryConfig absent = Read(Small("llama")).rotary;
  EXPECT_EQ(absent.type, RotaryConfig::Type::kDefault);
  EXPECT_EQ(absent.theta, 10000);
}

TEST(DecoderConfigTest, OriginalLengthDefaultsToMaxPositionEmbeddings) {
  const json yarn = {{"rope_scaling", {{"type", "yarn"}, {"factor", 2}}}};
  EXPECT_EQ(Read(With(Small("qwen2"), yarn)).rotary.original_max_position_embeddings, 64);
}

TEST(DecoderConfigTest, WritesOldAndNewKeys) {
  const ModelConfig model = FromConfigJson(
      With(Small("qwen3"), {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 2}}},
                            {"eos_token_id", {3, 4}},
                            {"torch_dtype", "float16"},
                            {"num_key_value_heads", nullptr}}));
  const json written = DecoderFamily().ConfigJson(model, "bfloat16");
  EXPECT_EQ(written["dtype"], "bfloat16");
  EXPECT_EQ(written["torch_dtype"], "bfloat16");
  EXPECT_EQ(written["architectures"], json({"Qwen3ForCausalLM"}));
  EXPECT_EQ(written["num_key_value_heads"], 4);
  EXPECT_EQ(written["rope_theta"], 10000);
  EXPECT_EQ(written["rope_scaling"]["rope_type"], "yarn");
  EXPECT_EQ(written["rope_parameters"]["rope_theta"], 10000);
  EXPECT_EQ(written["rope_parameters"]["factor"], 2);
  EXPECT_EQ(written["eos_token_id"], json({3, 4})) << "a key without effect is kept";
  EXPECT_EQ(written["use_cache"], true);
  EXPECT_FALSE(written.contains("layer_types"));
  EXPECT_FALSE(written.contains("other_keys"));
}

TEST(DecoderConfigTest, ReadsConfigJsonThatItWrote) {
  const json cases[] = {
      With(Small("llama"),
           {{"attention_bias", true},
            {"mlp_bias", true},
            {"pad_token_id", -1},
            {"rope_scaling",
             {{"rope_type", "llama3"}, {"factor", 8}, {"original_max_position_embeddings", 32}}}}),
      With(Small("mistral"), {{"sliding_window", 9}}),
      With(Small("qwen2"),
           {{"use_sliding_window", true}, {"sliding_window", 9}, {"max_window_layers", 2}}),
      With(Small("qwen3"),
           {{"use_sliding_window", true},
            {"sliding_window", 9},
            {"layer_types", {"sliding_attention", "full_attention", "full_attention"}}})};
  for (const json& config_json : cases) {
    SCOPED_TRACE(config_json.dump());
    const ModelConfig model = FromConfigJson(config_json);
    const json written = DecoderFamily().ConfigJson(model, "float32");
    EXPECT_EQ(DecoderFamily().ConfigJson(FromConfigJson(written), "float32"), written);
  }
}

TEST(DecoderConfigTest, WindowsFollowTypeAndLayer) {
  const auto windows = [](const json& config_json) {
    const DecoderConfig config = Read(config_json);
    std::vector<int64_t> found;
    for (int64_t i = 0; i < 3; ++i) found.push_back(config.WindowOf(i).value_or(0));
    return found;
  };
  using testing::ElementsAre;
  const json sliding = {{"use_sliding_window", true}, {"sliding_window", 9}};
  EXPECT_THAT(windows(With(Small("mistral"), {{"sliding_window", 9}})), ElementsAre(9, 9, 9));
  EXPECT_THAT(windows(Small("mistral")), ElementsAre(0, 0, 0));
  EXPECT_THAT(windows(With(Small("qwen2"), {{"sliding_window", 9}})), ElementsAre(0, 0, 0));
  EXPECT_THAT(windows(With(With(Small("qwen2"), sliding), {{"max_window_layers", 1}})),
              ElementsAre(0, 9, 9));
  const json types = {{"layer_types", {"sliding_attention", "full_attention", "full_attention"}}};
  EXPECT_THAT(windows(With(With(Small("qwen3"), sliding), types)), ElementsAre(9, 0, 0));
}

TEST(DecoderConfigTest, IgnoresKeysOfOtherTypesInConfigJson) {
  const DecoderConfig qwen2 = Read(With(Small("qwen2"), {{"attention_bias", true}}));
  EXPECT_TRUE(qwen2.qkv_bias());
  EXPECT_FALSE(qwen2.output_bias());
  EXPECT_FALSE(Read(With(Small("llama"), {{"sliding_window", 9}})).WindowOf(0));
}

TEST(DecoderConfigTest, RefusesOtherModelsAndVariants) {
  const struct {
    json config_json;
    const char* words;
  } cases[] = {
      {json::object(), "config.json: model_type is missing; supported: gpt2, llama, mistral"},
      {Small("mixtral"), "model_type is \"mixtral\", which is not supported: it is a mixture"},
      {Small("gemma2"), "Gemma"},
      {Small("phi3"), "fused"},
      {Small("bert"), "known: gpt2, llama, mistral, qwen2, qwen3"},
      {With(Small("llama"), {{"quantization_config", {{"bits", 4}}}}), "quantized"},
      {With(Small("llama"), {{"num_local_experts", 8}}), "mixtures of experts"},
      {With(Small("llama"), {{"partial_rotary_factor", 0.5}}), "partial_rotary_factor is not 1"},
      {With(Small("llama"), {{"pretraining_tp", 2}}), "pretraining_tp is not 1"},
      {With(Small("llama"), {{"hidden_act", "gelu"}}), "hidden_act is \"gelu\""},
      {With(Small("llama"), {{"num_key_value_heads", 3}}), "num_key_value_heads is 3"},
      {With(Small("llama"), {{"head_dim", nullptr}, {"num_attention_heads", 5}}),
       "hidden_size is 32, which the 5 heads"},
      {With(Small("llama"), {{"head_dim", 7}}), "head_dim is 7; it must be even"},
      {With(Small("llama"), {{"pad_token_id", 61}}), "pad_token_id is 61, which is not below"},
      {With(Small("llama"), {{"vocab_size", nullptr}}), "vocab_size is missing"},
      {With(Small("llama"), {{"rope_scaling", {{"type", "dynamic"}, {"factor", 2}}}}),
       "rope_scaling.type is \"dynamic\", which is not supported"},
      {With(Small("llama"), {{"rope_parameters", {{"rope_type", "longrope"}}}}),
       "rope_parameters.rope_type is \"longrope\", which is not supported"},
      {With(Small("llama"), {{"rope_parameters", {{"rope_type", "yarn"}}}}),
       "rope_parameters.factor is missing"},
      {With(Small("llama"),
            {{"rope_parameters", {{"rope_type", "yarn"}, {"factor", 2}, {"mscale", 1.0}}}}),
       "rope_parameters.mscale is not supported"},
      {With(Small("qwen3"), {{"layer_types", {"full_attention"}}}), "layer_types has 1 values"},
      {With(Small("qwen3"), {{"layer_types", {"linear_attention", "x", "y"}}}), "layer_types has"},
      {With(Small("qwen2"), {{"use_sliding_window", true}}), "sliding_window is missing"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(Refusal([&] { FromConfigJson(c.config_json); }), HasSubstr(c.words));
  }
  json no_heads = Small("mistral");
  no_heads.erase("num_key_value_heads");
  EXPECT_THAT(Refusal([&] { FromConfigJson(no_heads); }),
              HasSubstr("num_key_value_heads is missing"));
}

TEST(DecoderConfigTest, RecipeRefusesKeysOfOtherTypes) {
  json section = With(Small("llama"), {{"type", "decoder"}, {"use_sliding_window", true}});
  section.erase("use_cache");
  EXPECT_THAT(Refusal([&] { ParseModelSection(section.dump(), "recipe"); }),
              HasSubstr("model.use_sliding_window is a setting of model_type qwen2, qwen3"));
  section.erase("use_sliding_window");
  EXPECT_EQ(Refusal([&] { ParseModelSection(section.dump(), "recipe"); }), "");
  section["from"] = "folder";
  EXPECT_THAT(Refusal([&] { ParseModelSection(section.dump(), "recipe"); }),
              HasSubstr("model.from is a folder, which only `dslaunch train` reads"));
}

}  // namespace
}  // namespace dslaunch::decoder_config_test

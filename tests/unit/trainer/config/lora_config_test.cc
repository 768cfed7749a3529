#include "trainer/config/lora_config.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/unit/trainer/expect_refused.h"
#include "trainer/config/json/json_object.h"

namespace dslaunch::lora_config_test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

LoraConfig Read(const json& section) { return ReadLora(JsonObject(section, "recipe", "lora")); }
LoraConfig ReadPeft(const json& config) {
  return ReadAdapterConfig(JsonObject(config, "adapter_config.json", ""));
}

// Returns the keys that PEFT 0.21.2 writes.
json PeftConfig() {
  return json::parse(R"({
    "alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null, "auto_mapping": null,
    "base_model_name_or_path": "base", "bias": "none", "corda_config": null,
    "ensure_weight_tying": false, "eva_config": null, "exclude_modules": null,
    "fan_in_fan_out": true, "inference_mode": true, "init_lora_weights": true, "kasa_config": null,
    "layer_replication": null, "layers_pattern": null, "layers_to_transform": null,
    "loftq_config": {}, "lora_alpha": 32, "lora_bias": false, "lora_dropout": 0.05,
    "lora_ga_config": null, "megatron_config": null, "megatron_core": "megatron.core",
    "modules_to_save": null, "monteclora_config": null, "peft_type": "LORA",
    "peft_version": "0.21.2", "qalora_group_size": 16, "r": 16, "rank_pattern": {},
    "revision": null, "target_modules": ["q_proj", "v_proj"], "target_parameters": null,
    "task_type": "CAUSAL_LM", "trainable_token_indices": null, "use_bdlora": null,
    "use_dora": false, "use_qalora": false, "use_rslora": true, "velora_config": null})");
}

TEST(LoraConfigTest, ReadsSection) {
  const LoraConfig lora =
      Read({{"rank", 16}, {"alpha", 32}, {"dropout", 0.05}, {"targets", {"q_proj", "v_proj"}}});
  EXPECT_EQ(lora.rank, 16);
  EXPECT_EQ(lora.scale(), 2);
  EXPECT_EQ(lora.dropout, 0.05);
  EXPECT_THAT(lora.targets, ElementsAre("q_proj", "v_proj"));
  EXPECT_THAT(Read({{"rank", 4}, {"alpha", 8}, {"targets", "all-linear"}}).targets, IsEmpty());
  const LoraConfig stable =
      Read({{"rank", 4}, {"alpha", 8}, {"targets", "all-linear"}, {"use_rslora", true}});
  EXPECT_EQ(stable.scale(), 4);
}

TEST(LoraConfigTest, RefusesWrongSections) {
  const json good = {{"rank", 4}, {"alpha", 8}, {"targets", {"q_proj"}}};
  for (const auto& [changes, words] : std::vector<std::pair<json, std::string>>{
           {{{"rank", nullptr}}, "lora.rank is missing"},
           {{{"alpha", nullptr}}, "lora.alpha is missing"},
           {{{"targets", nullptr}}, "lora.targets is missing"},
           {{{"targets", "q_proj"}}, "lora.targets is \"q_proj\"; known: all-linear"},
           {{{"targets", json::array()}}, "lora.targets"},
           {{{"targets", {""}}}, "lora.targets has a name with 0 bytes"},
           {{{"rank", 0}}, "lora.rank"},
           {{{"dropout", 1}}, "lora.dropout is 1"},
           {{{"r", 8}}, "lora.r"},
           {{{"from", "folder"}}, "lora.from is a folder"}}) {
    json section = good;
    section.update(changes);
    ExpectRefused([&section = section] { Read(section); }, ExitCode::kBadInput, HasSubstr(words));
  }
}

TEST(LoraConfigTest, AdaptsNamesAndTheirEnds) {
  LoraConfig lora;
  lora.targets = {"q_proj", "mlp.up_proj"};
  EXPECT_TRUE(lora.Adapts("q_proj"));
  EXPECT_TRUE(lora.Adapts("model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(lora.Adapts("model.layers.0.mlp.up_proj"));
  EXPECT_FALSE(lora.Adapts("model.layers.0.self_attn.up_proj"));
  EXPECT_FALSE(lora.Adapts("model.layers.0.self_attn.kq_proj"));
  lora.targets = {};
  EXPECT_TRUE(lora.Adapts("model.layers.0.self_attn.kq_proj"));
  EXPECT_FALSE(lora.Adapts("lm_head"));
}

TEST(LoraConfigTest, SectionReadsBackEqual) {
  for (const json& section :
       {json{{"rank", 4}, {"alpha", 8.5}, {"targets", "all-linear"}},
        json{{"rank", 4}, {"alpha", 8}, {"targets", {"q_proj"}}, {"init_weights", "folder"}}}) {
    const json shown = LoraSection(Read(section));
    EXPECT_EQ(json(LoraSection(Read(shown))), shown);
    for (const auto& [key, value] : section.items()) EXPECT_EQ(shown.at(key), value) << key;
  }
}

TEST(AdapterConfigTest, ReadsConfigOfPeft) {
  const LoraConfig lora = ReadPeft(PeftConfig());
  EXPECT_EQ(lora.rank, 16);
  EXPECT_EQ(lora.alpha, 32);
  EXPECT_EQ(lora.dropout, 0.05);
  EXPECT_TRUE(lora.use_rslora);
  EXPECT_THAT(lora.targets, ElementsAre("q_proj", "v_proj"));
  const json section =
      json::parse(LoraSectionOfAdapterConfig(PeftConfig().dump(), "adapter_config.json"));
  EXPECT_EQ(json(LoraSection(Read(section))), section);
}

TEST(AdapterConfigTest, RefusesVariantsByName) {
  for (const auto& [key, value] :
       std::vector<std::pair<std::string, json>>{{"use_dora", true},
                                                 {"rank_pattern", {{"q_proj", 4}}},
                                                 {"rank_pattern", {{"enabled", false}}},
                                                 {"alpha_pattern", {{"q_proj", 4}}},
                                                 {"modules_to_save", {"lm_head"}},
                                                 {"layers_to_transform", {0}},
                                                 {"layers_to_transform", 0},
                                                 {"target_parameters", {"weight"}},
                                                 {"lora_bias", true},
                                                 {"trainable_token_indices", {1}},
                                                 {"exclude_modules", {"q_proj"}},
                                                 {"layer_replication", {{0, 2}}},
                                                 {"use_qalora", true},
                                                 {"key_of_later_version", 1},
                                                 {"bias", "all"},
                                                 {"init_lora_weights", "pissa_niter_4"},
                                                 {"peft_type", "LOHA"},
                                                 {"peft_type", nullptr},
                                                 {"target_modules", ".*proj"},
                                                 {"target_modules", nullptr},
                                                 {"r", nullptr},
                                                 {"r", 1 << 20},
                                                 {"lora_alpha", "big"},
                                                 {"lora_dropout", 2}}) {
    json config = PeftConfig();
    config[key] = value;
    ExpectRefused([&config = config] { ReadPeft(config); }, ExitCode::kBadInput,
                  HasSubstr("adapter_config.json: " + key + " "));
  }
}

TEST(AdapterConfigTest, WritesWhatItReads) {
  LoraConfig lora;
  lora.rank = 4;
  lora.alpha = 8;
  lora.dropout = 0.25;
  const json all =
      AdapterConfigJson(lora, {"transformer.h.0.attn.c_attn", "transformer.h.1.attn.c_attn"},
                        "base", /*fan_in_fan_out=*/true);
  EXPECT_THAT(ReadPeft(all).targets, ElementsAre("c_attn"));
  EXPECT_EQ(all["fan_in_fan_out"], true);
  EXPECT_TRUE(all["lora_alpha"].is_number_integer());
  lora.alpha = 8.5;
  lora.targets = {"h.0.attn.c_attn"};
  const json some = AdapterConfigJson(lora, {"transformer.h.0.attn.c_attn"}, "", false);
  EXPECT_EQ(json(LoraSection(ReadPeft(some))), json(LoraSection(lora)));
  EXPECT_TRUE(some["base_model_name_or_path"].is_null());
}

}  // namespace
}  // namespace dslaunch::lora_config_test

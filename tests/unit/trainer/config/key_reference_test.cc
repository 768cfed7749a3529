#include "trainer/config/key_reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "trainer/config/json/key_record.h"
#include "trainer/config/json/other_names.h"

namespace dslaunch::key_reference_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::map<std::string, ReferenceKey> Keys() {
  std::map<std::string, ReferenceKey> keys;
  for (const ReferenceKey& key : RecipeKeys()) keys.emplace(key.path, key);
  return keys;
}

TEST(KeyReferenceTest, EveryAcceptedKeyHasMeaning) {
  for (const ReferenceKey& key : RecipeKeys()) {
    EXPECT_EQ(key.refusal.empty(), !key.meaning.empty()) << key.path;
  }
}

TEST(KeyReferenceTest, KeysHaveTheirValuesAndTypes) {
  const std::map<std::string, ReferenceKey> keys = Keys();
  EXPECT_EQ(keys.at("run.epochs").value, "whole number from 1 to 1000000");
  EXPECT_EQ(keys.at("engine.gradient_clipping").value, "number, at least 0");
  EXPECT_EQ(keys.at("engine.pipeline.stages").value, "whole number from 1 to 4096 or `auto`");
  EXPECT_EQ(keys.at("engine.optimizer.param_groups[].names").value, "list of texts");
  EXPECT_EQ(keys.at("engine.bf16").value, "") << "a section";
  EXPECT_THAT(keys.at("model.num_classes").types, ElementsAre("mlp", "cnn", "resnet18"));
  EXPECT_THAT(keys.at("data.shuffle").types, IsEmpty()) << "all have it";
}

TEST(KeyReferenceTest, ListsTypesOfKeyInsteadOfRefusal) {
  const std::map<std::string, ReferenceKey> keys = Keys();
  EXPECT_EQ(keys.at("engine.optimizer.params.amsgrad").refusal, "");
  EXPECT_THAT(keys.at("engine.optimizer.params.amsgrad").types, ElementsAre("Adam", "AdamW"));
  EXPECT_NE(keys.at("engine.optimizer.params.maximize").refusal, "");
  EXPECT_NE(keys.at("engine.sparse_attention").refusal, "");
}

TEST(RecipeSchemaTest, HasEveryKeyWithItsValues) {
  const nlohmann::json schema = nlohmann::json::parse(RecipeSchema());
  const auto key = [&](const std::string& section, const std::string& name) {
    return schema.at(nlohmann::json::json_pointer(section)).at("properties").at(name);
  };
  const std::string run = "/properties/run";
  EXPECT_EQ(key(run, "epochs").at("type"), nlohmann::json({"integer", "null"}));
  EXPECT_EQ(key(run, "epochs").at("minimum"), 1);
  EXPECT_EQ(key(run, "device").at("enum"), nlohmann::json({"auto", "cpu", "cuda", nullptr}));
  EXPECT_THAT(key(run, "steps").at("description").get<std::string>(),
              testing::HasSubstr("optimizer steps"));
  const std::string engine = "/properties/engine";
  EXPECT_EQ(key(engine + "/properties/pipeline", "stages").at("anyOf").size(), 2u);
  EXPECT_EQ(key(engine + "/properties/optimizer/properties/param_groups/items", "names").at("type"),
            nlohmann::json({"array", "null"}));
  EXPECT_FALSE(schema.at("additionalProperties"));
  EXPECT_FALSE(schema.at(nlohmann::json::json_pointer(engine)).at("additionalProperties"));
}

TEST(OtherNamesTest, FindsNameOfOtherProgramsKey) {
  EXPECT_EQ(NameHere("SGDR", {"StepLR", "CosineAnnealingWarmRestarts"}),
            "CosineAnnealingWarmRestarts");
  EXPECT_EQ(NameHere("cuda_time_total", {"self_time", "device_time"}), "device_time");
  EXPECT_EQ(NameHere("num_train_epochs", {"epochs"}), "epochs");
  EXPECT_EQ(NameHere("num_train_epochs", {"stages"}), std::nullopt);
  EXPECT_THAT(std::string(AdviceInstead("steps_per_epoch")), testing::HasSubstr("run.steps"));
  EXPECT_EQ(AdviceInstead("steps"), "");
}

TEST(KeyReferenceTest, RecordsOnlyWhileARecordExists) {
  EXPECT_EQ(KeyRecord::Current(), nullptr);
  {
    KeyRecord record;
    EXPECT_EQ(KeyRecord::Current(), &record);
    record.Note("a[3].b[0].c", "text", "", "");
    EXPECT_EQ(record.uses().at(0).path, "a[].b[].c");
  }
  EXPECT_EQ(KeyRecord::Current(), nullptr);
}

}  // namespace
}  // namespace dslaunch::key_reference_test

#include "trainer/config/key_reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "trainer/config/key_record.h"

namespace dslaunch::key_reference_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::map<std::string, ReferenceKey> Keys() {
  std::map<std::string, ReferenceKey> keys;
  for (const ReferenceKey& key : RecipeKeys()) keys.emplace(key.path, key);
  return keys;
}

TEST(KeyReferenceTest, EveryKeyThatIsObeyedHasAMeaning) {
  for (const ReferenceKey& key : RecipeKeys()) {
    EXPECT_EQ(key.refusal.empty(), !key.meaning.empty()) << key.path;
  }
  EXPECT_THAT(MeaningsWithoutKey(), IsEmpty());
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

TEST(KeyReferenceTest, AKeyThatOneTypeObeysIsNotRefused) {
  const std::map<std::string, ReferenceKey> keys = Keys();
  EXPECT_EQ(keys.at("engine.optimizer.params.amsgrad").refusal, "");
  EXPECT_THAT(keys.at("engine.optimizer.params.amsgrad").types, ElementsAre("Adam", "AdamW"));
  EXPECT_NE(keys.at("engine.optimizer.params.maximize").refusal, "");
  EXPECT_NE(keys.at("engine.sparse_attention").refusal, "");
}

TEST(KeyReferenceTest, NothingIsRecordedWithoutARecord) {
  EXPECT_EQ(KeyRecord::Current(), nullptr);
  {
    KeyRecord record;
    EXPECT_EQ(KeyRecord::Current(), &record);
    record.Note("a[3].b[0].c", "text");
    EXPECT_EQ(record.uses().at(0).path, "a[].b[].c");
  }
  EXPECT_EQ(KeyRecord::Current(), nullptr);
}

}  // namespace
}  // namespace dslaunch::key_reference_test

// Tests that a family of models is only a folder and a line of families.def. This program has the
// folder tiny/ and a families.def with an additional line; no other source mentions the family.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/temp_dir.h"
#include "tests/unit/trainer/expect_refused.h"
#include "tests/unit/trainer/families/tiny/tiny_config.h"
#include "tests/unit/trainer/ranks.h"
#include "tests/unit/trainer/tensor_ranks.h"
#include "trainer/config/key_reference.h"
#include "trainer/config/recipe.h"
#include "trainer/config/recipe_check.h"
#include "trainer/program/checkpoint_tool.h"
#include "trainer/program/run.h"

namespace dslaunch::new_family_test {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Key;
using testing::UnorderedElementsAre;

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class NewFamilyTest : public testing::Test {
 protected:
  NewFamilyTest() {
    std::string rows = "a,b,c,label\n";
    for (int i = 0; i < 40; ++i) {
      rows +=
          std::to_string(i) + "," + std::to_string(40 - i) + ",1," + (i < 20 ? "0" : "1") + "\n";
    }
    recipe_ = {
        {"model", {{"type", "tiny"}, {"width", 5}}},
        {"data",
         {{"type", "csv"}, {"path", folder_.Write("rows.csv", rows)}, {"val_fraction", 0.2}}},
        {"run", {{"steps", 4}, {"device", "cpu"}}},
        {"engine", {{"train_batch_size", 8}}}};
  }

  std::string path(const std::string& name) const { return folder_ / name; }

  // Runs the recipe as the only rank, with `settings` added to its section "run".
  void RunWith(const json& settings) const {
    json recipe = recipe_;
    recipe["run"].update(settings);
    WorkerEnv env;
    env.master_addr = "127.0.0.1";
    dslaunch::Run(ParseRecipe(recipe.dump(), "recipe", 1), env);
  }

  TempDir folder_;
  json recipe_;
};

TEST_F(NewFamilyTest, LauncherChecksItsKeys) {
  EXPECT_EQ(CheckRecipe(recipe_.dump(), 1), std::nullopt);
  recipe_["model"]["width"] = 65;
  EXPECT_THAT(CheckRecipe(recipe_.dump(), 1)->message, HasSubstr("model.width is 65; it must be"));
  recipe_["model"] = {{"type", "tiny"}, {"depth", 1}};
  EXPECT_THAT(CheckRecipe(recipe_.dump(), 1)->message, HasSubstr("model.depth is not a known key"));
  recipe_["model"] = {{"type", "tiny"}};
  recipe_["data"] = {{"type", "text"}, {"path", "text"}, {"block_size", 4}};
  EXPECT_THAT(CheckRecipe(recipe_.dump(), 1)->message, HasSubstr("tiny takes idx, cifar"));
}

TEST_F(NewFamilyTest, ReferenceAndSchemaHaveItsKeys) {
  const json model = json::parse(RecipeSchema())["properties"]["model"]["properties"];
  EXPECT_EQ(model["width"]["maximum"], 64);
  EXPECT_THAT(model["type"]["enum"], testing::Contains("tiny"));
  for (const ReferenceKey& key : RecipeKeys()) {
    if (key.path != "model.width") continue;
    EXPECT_EQ(key.meaning, "units of the tiny layer; default 4");
    EXPECT_THAT(key.types, testing::ElementsAre("tiny"));
  }
}

TEST_F(NewFamilyTest, TrainsExportsAndLoads) {
  RunWith({{"checkpoint_dir", path("saved")}, {"export_hf", path("exported")}});
  const json config = json::parse(Contents(path("exported/config.json")));
  EXPECT_EQ(config,
            json({{"model_type", "tiny"}, {"dtype", "float32"}, {"width", 5}, {"num_classes", 2}}));
  RunCheckpointTool({"export", path("saved/step_000004"), path("again")});
  EXPECT_EQ(Contents(path("again/model.safetensors")),
            Contents(path("exported/model.safetensors")));
  RunWith({{"mode", "predict"},
           {"init_weights", path("exported")},
           {"predictions", path("predicted")}});
  EXPECT_THAT(Contents(path("predicted")), HasSubstr(R"({"index":7,"prediction":)"));
}

TEST_F(NewFamilyTest, PlansMemoryAndPipeline) {
  testing::internal::CaptureStdout();
  RunWith({{"mode", "plan_memory"}, {"ranks", 1}});
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("  passes              0.5 KiB"));
  recipe_["engine"]["pipeline"] = {{"stages", 1}};
  testing::internal::CaptureStdout();
  RunWith({{"mode", "plan_pipeline"}});
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("stage 0: layers 0 to 1"));
}

TEST_F(NewFamilyTest, DividesOverRanks) {
  recipe_["engine"]["tensor_parallel"] = {{"autotp_size", 2}};
  EXPECT_THAT(CheckRecipe(recipe_.dump(), 2)->message,
              HasSubstr("model.width is 5, which is not a multiple"));
  const TinyConfig config;
  const at::Tensor inputs = at::arange(6.0).view({2, 3});
  const std::shared_ptr<Model> whole = MakePart(config, 3, {}, 7);
  const at::Tensor wanted = whole->forward(inputs);
  for (const auto& error : RunRanks(2, [&](const ProcessGroup& group) {
         const TensorParallel tensor = {.parts = 2, .part = group.rank(), .group = &group};
         const std::shared_ptr<Model> part = MakePart(config, 3, tensor, 7);
         EXPECT_THAT(CutsIn(*part),
                     UnorderedElementsAre(Key("net.first.weight"), Key("net.first.bias"),
                                          Key("net.second.weight")));
         EXPECT_TRUE(at::allclose(part->forward(inputs), wanted));
       })) {
    EXPECT_EQ(TextOf(error), "");
  }
}

}  // namespace
}  // namespace dslaunch::new_family_test

#include "trainer/config/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trainer/train_error.h"

namespace dslaunch {
namespace {

using nlohmann::json;

json Minimal() {
  return {{"model", {{"type", "mlp"}}},
          {"data", {{"type", "idx"}}},
          {"run", {{"steps", 10}}},
          {"engine", {{"train_batch_size", 64}, {"optimizer", {{"type", "Adam"}}}}}};
}

Recipe Parse(const json& recipe, int64_t ranks = 4) {
  return ParseRecipe(recipe.dump(), "r.json", ranks);
}

std::string Refusal(const json& recipe, int64_t ranks = 4) {
  try {
    Parse(recipe, ranks);
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    return error.what();
  }
  return "accepted";
}

// The minimal recipe with the value at a JSON pointer replaced.
json With(const std::string& pointer, const json& value) {
  json recipe = Minimal();
  recipe[json::json_pointer(pointer)] = value;
  return recipe;
}

TEST(RecipeTest, DefaultsAreDeepSpeeds) {
  const Recipe recipe = Parse(Minimal());
  EXPECT_EQ(std::get<MlpConfig>(recipe.model).hidden_size, 128);
  EXPECT_EQ(recipe.data.path, "/usr/share/datasets/fashion-mnist");
  EXPECT_TRUE(recipe.data.shuffle);
  EXPECT_EQ(recipe.engine.batch.micro_batch_size, 16);
  EXPECT_EQ(recipe.engine.gradient_clipping, 1.0);
  const OptimizerConfig& optimizer = *recipe.engine.optimizer;
  EXPECT_EQ(optimizer.type, OptimizerConfig::Type::kAdamW)
      << "Adam means AdamW unless adam_w_mode is false";
  EXPECT_EQ(optimizer.lr, 1e-3);
  EXPECT_EQ(optimizer.beta2, 0.999);
  EXPECT_EQ(optimizer.weight_decay, 0);
}

TEST(RecipeTest, OptimizerAndScheduler) {
  json recipe = With("/engine/optimizer/params", {{"lr", 0.5}});
  recipe["engine"]["scheduler"] = {{"type", "StepLR"}, {"params", {{"step_size", 7}}}};
  const EngineConfig engine = Parse(recipe).engine;
  EXPECT_EQ(engine.optimizer->lr, 0.5);
  EXPECT_EQ(engine.scheduler.name, "StepLR");
  EXPECT_EQ(std::get<StepLr>(engine.scheduler.schedule).step_size, 7);
  EXPECT_EQ(Parse(Minimal()).engine.scheduler.name, "");

  EXPECT_THAT(Refusal(With("/engine/optimizer/params", {{"momentum", 0.9}})),
              testing::StartsWith("r.json: engine.optimizer.params.momentum is not a known key"));
  EXPECT_THAT(Refusal(With("/engine/scheduler", {{"type", "WarmupLr"}})),
              testing::StartsWith("r.json: engine.scheduler.type is \"WarmupLr\"; did you mean "
                                  "\"WarmupLR\"?"));
  EXPECT_EQ(Refusal(With("/engine/scheduler", {{"type", "StepLR"}})),
            "r.json: engine.scheduler.params.step_size is missing; this schedule needs it");
}

TEST(RecipeTest, UnknownKeysAreRefusedAtEveryDepth) {
  EXPECT_EQ(Refusal(With("/modle", 1)),
            "r.json: modle is not a known key; did you mean \"model\"?");
  EXPECT_EQ(Refusal(With("/model/hiden_size", 64)),
            "r.json: model.hiden_size is not a known key; did you mean \"hidden_size\"?");
  EXPECT_EQ(Refusal(With("/data/shufle", true)),
            "r.json: data.shufle is not a known key; did you mean \"shuffle\"?");
  EXPECT_EQ(Refusal(With("/run/epoch", 3)),
            "r.json: run.epoch is not a known key; did you mean \"epochs\"?");
  EXPECT_EQ(Refusal(With("/engine/train_micro_batch_size", 3)),
            "r.json: engine.train_micro_batch_size is not a known key; did you mean "
            "\"train_micro_batch_size_per_gpu\"?");
}

TEST(RecipeTest, MissingParts) {
  json no_data = Minimal();
  no_data.erase("data");
  EXPECT_THAT(Refusal(no_data), testing::HasSubstr("data is missing"));
  EXPECT_THAT(Refusal(With("/run", json::object())),
              testing::HasSubstr("run needs one of epochs and steps; it has neither"));
  EXPECT_THAT(Refusal(With("/run/epochs", 2)), testing::HasSubstr("it has both"));
  EXPECT_THAT(Refusal(json::array()), testing::HasSubstr("not an object"));
}

TEST(RecipeTest, DeepSpeedKeysWithoutEffectHere) {
  EXPECT_EQ(Refusal(With("/engine/fp16", {{"enabled", false}})), "accepted");
  EXPECT_EQ(Refusal(With("/engine/zero_optimization", {{"stage", 2}})),
            "r.json: engine.zero_optimization.stage is 2, but dslaunch shards nothing yet; take the "
            "section out, or set the stage to 0");
}

struct BatchCase {
  std::optional<int64_t> train, micro, accumulation;
  int64_t ranks;
  int64_t want_train, want_micro, want_accumulation;  // 0: refused
};

TEST(BatchTest, AnyTwoGiveTheThird) {
  const std::vector<BatchCase> cases = {
      {32, 16, 1, 2, 32, 16, 1},
      {32, 8, 2, 2, 32, 8, 2},
      {33, 17, 2, 2, 0, 0, 0},
      {32, 18, 1, 2, 0, 0, 0},
      {32, 8, std::nullopt, 2, 32, 8, 2},
      {32, std::nullopt, 4, 2, 32, 4, 4},
      {std::nullopt, 4, 4, 2, 32, 4, 4},
      {32, std::nullopt, std::nullopt, 2, 32, 16, 1},
      {std::nullopt, 16, std::nullopt, 2, 32, 16, 1},
      {std::nullopt, std::nullopt, 4, 2, 0, 0, 0},
      {std::nullopt, std::nullopt, std::nullopt, 2, 0, 0, 0},
      {33, std::nullopt, std::nullopt, 2, 0, 0, 0},
      {1, std::nullopt, std::nullopt, 2, 0, 0, 0},
      {16, 16, std::nullopt, 2, 0, 0, 0},
      {std::nullopt, int64_t{1} << 31, int64_t{1} << 31, 1 << 24, 0, 0, 0}};
  for (size_t i = 0; i < cases.size(); ++i) {
    const BatchCase& c = cases[i];
    try {
      const BatchConfig got = ResolveBatch(c.train, c.micro, c.accumulation, c.ranks, "r");
      EXPECT_EQ(got.train_batch_size, c.want_train) << "case " << i;
      EXPECT_EQ(got.micro_batch_size, c.want_micro) << "case " << i;
      EXPECT_EQ(got.accumulation_steps, c.want_accumulation) << "case " << i;
    } catch (const TrainError& error) {
      EXPECT_EQ(c.want_train, 0) << "case " << i << ": " << error.what();
    }
  }
}

TEST(BatchTest, TheArithmeticIsShown) {
  json recipe = With("/engine/train_batch_size", 33);
  recipe["engine"]["train_micro_batch_size_per_gpu"] = 17;
  recipe["engine"]["gradient_accumulation_steps"] = 2;
  EXPECT_EQ(
      Refusal(recipe, 2),
      "r.json: engine: the batch sizes do not fit: train_batch_size 33 = "
      "train_micro_batch_size_per_gpu 17 x "
      "gradient_accumulation_steps 2 x 2 ranks (= 68); change one of them, or the number of ranks");
  EXPECT_THAT(Refusal(Minimal(), 3),
              testing::HasSubstr("train_batch_size 64 = train_micro_batch_size_per_gpu ? x "
                                 "gradient_accumulation_steps ? x 3 ranks has no whole"));
}

}  // namespace
}  // namespace dslaunch

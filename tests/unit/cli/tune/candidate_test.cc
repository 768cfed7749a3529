#include "cli/tune/candidate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

namespace dslaunch::candidate_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

constexpr char kRecipe[] =
    R"({"model":{"type":"gpt2","vocab_size":256,"n_positions":64,"n_embd":32,"n_layer":2,"n_head":2},)"
    R"("data":{"type":"text","path":"t"},"run":{"steps":5},"engine":{"train_batch_size":32}})";

std::string With(const std::string& engine) {
  nlohmann::json recipe = nlohmann::json::parse(kRecipe);
  recipe["engine"] = nlohmann::json::parse(engine);
  return recipe.dump();
}

std::vector<Candidate> SpaceOf(const TuneProblem& problem, const std::string& recipe) {
  return CandidateSpace(problem, [&](const Candidate& candidate) {
    return IsValidRecipe(problem, candidate, recipe);
  });
}

Candidate Make(int64_t micro_batch, int64_t zero, int64_t recompute, int64_t offload,
               int64_t stages, int64_t parts = 1) {
  return {{micro_batch, zero, recompute, offload, stages, parts}};
}

TEST(CandidateTest, ReadsRecipe) {
  const TuneProblem problem =
      MakeTuneProblem(With(R"({"train_micro_batch_size_per_gpu":4,"gradient_accumulation_steps":2,
               "zero_optimization":{"stage":2,"offload_optimizer":{"device":"cpu"}},
               "activation_checkpointing":{"number_checkpoints":3}})"),
                      2, 1);
  EXPECT_EQ(problem.global_batch, 16);
  EXPECT_EQ(problem.recipe, Make(4, 2, 1, 1, 1));
  EXPECT_EQ(problem.number_checkpoints, 3);
  EXPECT_EQ(AccumulationOf(problem, problem.recipe), 2);
}

TEST(CandidateTest, SpaceKeepsGlobalBatchAndRanks) {
  const TuneProblem problem = MakeTuneProblem(kRecipe, 4, 1);
  const std::vector<Candidate> space = SpaceOf(problem, kRecipe);
  EXPECT_EQ(space.front(), problem.recipe);
  EXPECT_EQ(std::set(space.begin(), space.end()).size(), space.size());
  for (const Candidate& candidate : space) {
    EXPECT_EQ(candidate[Axis::kMicroBatch] * AccumulationOf(problem, candidate) *
                  ReplicasOf(problem, candidate),
              32);
    EXPECT_EQ(
        ReplicasOf(problem, candidate) * candidate[Axis::kPipeline] * candidate[Axis::kTensor], 4);
    EXPECT_LE(candidate[Axis::kTensor], 2);  // the model has only 2 heads
  }
  // With 4 replicas there are 4 micro-batches x 4 stages of ZeRO; with 2, by pipeline or tensor, 5
  // x 4 each; with 1, by either or both, 6 without ZeRO each. Each is counted twice, for
  // recomputation.
  EXPECT_EQ(space.size(), 2u * (4 * 4 + 2 * 5 * 4 + 2 * 6));
}

TEST(CandidateTest, AddsOffloadOnGpusOnly) {
  TuneProblem problem = MakeTuneProblem(kRecipe, 2, 1);
  const auto offloads = [&] {
    std::set<int64_t> values;
    for (const Candidate& one : SpaceOf(problem, kRecipe)) values.insert(one[Axis::kOffload]);
    return values;
  };
  EXPECT_THAT(offloads(), ElementsAre(0));
  problem.on_gpu = true;
  EXPECT_THAT(offloads(), ElementsAre(0, 1, 2));
  for (const Candidate& one : SpaceOf(problem, kRecipe)) {
    EXPECT_FALSE(one[Axis::kOffload] == 1 && one[Axis::kZeroStage] == 0);
    EXPECT_FALSE(one[Axis::kOffload] == 2 && one[Axis::kZeroStage] < 3);
  }
}

TEST(CandidateTest, LeavesOutWhatRecipeForbids) {
  nlohmann::json recipe = nlohmann::json::parse(kRecipe);
  recipe["run"]["check_replicas_every"] = 2;  // not supported at ZeRO 3 or in a pipeline
  const TuneProblem problem = MakeTuneProblem(recipe.dump(), 2, 1);
  const std::vector<Candidate> space = SpaceOf(problem, recipe.dump());
  EXPECT_THAT(space, Contains(Make(8, 2, 0, 0, 1)));
  EXPECT_THAT(space, Not(Contains(Make(8, 3, 0, 0, 1))));
  EXPECT_THAT(space, Not(Contains(Make(8, 0, 0, 0, 2))));
}

TEST(CandidateTest, DividesLayersWithinNodeOnly) {
  TuneProblem problem = MakeTuneProblem(kRecipe, 4, 2);
  const Candidate divided = Make(16, 0, 0, 0, 1, 2);
  problem.ranks_of_nodes = {2, 2};
  EXPECT_THAT(SpaceOf(problem, kRecipe), Contains(divided));
  problem.ranks_of_nodes = {1, 3};
  EXPECT_THAT(SpaceOf(problem, kRecipe), Not(Contains(divided)));
}

TEST(CandidateTest, KeysAreDifferencesFromRecipe) {
  const TuneProblem problem = MakeTuneProblem(kRecipe, 2, 1);
  EXPECT_TRUE(KeysOf(problem, problem.recipe).empty());
  EXPECT_THAT(
      KeysOf(problem, Make(4, 3, 1, 2, 1)),
      ElementsAre(RecipeKey{"engine.train_batch_size", "32"},
                  RecipeKey{"engine.train_micro_batch_size_per_gpu", "4"},
                  RecipeKey{"engine.gradient_accumulation_steps", "4"},
                  RecipeKey{"engine.zero_optimization.stage", "3"},
                  RecipeKey{"engine.activation_checkpointing.number_checkpoints", "1000"},
                  RecipeKey{"engine.zero_optimization.offload_optimizer", R"({"device":"cpu"})"},
                  RecipeKey{"engine.zero_optimization.offload_param", R"({"device":"cpu"})"}));
  EXPECT_THAT(KeysOf(problem, Make(32, 0, 0, 0, 1, 2)),
              Contains(RecipeKey{"engine.tensor_parallel.autotp_size", "2"}));
}

TEST(CandidateTest, RecipeOfEachCandidateReadsBackEqual) {
  for (const char* engine :
       {R"({"train_batch_size":16})", R"({"train_batch_size":16,"zero_optimization":true})",
        R"({"train_batch_size":16,"gradient_accumulation_steps":2,
            "activation_checkpointing":{"number_checkpoints":2},"pipeline":null})",
        R"({"train_micro_batch_size_per_gpu":4,"gradient_accumulation_steps":2,
            "pipeline":{"stages":2,"activation_checkpoint_interval":2}})",
        R"({"train_batch_size":16,"tensor_parallel":{"autotp_size":2,"sequence_parallel":true}})",
        R"({"train_batch_size":16,"zero_optimization":{"stage":3,"offload_param":{"device":"cpu"},
            "offload_optimizer":{"device":"cpu"}}})"}) {
    SCOPED_TRACE(engine);
    const std::string recipe = With(engine);
    TuneProblem problem = MakeTuneProblem(recipe, 4, 1);
    problem.on_gpu = true;
    const std::vector<Candidate> space = SpaceOf(problem, recipe);
    EXPECT_GT(space.size(), 40u);
    for (const Candidate& candidate : space) {
      const std::string changed = WithKeys(recipe, KeysOf(problem, candidate));
      const TuneProblem again = MakeTuneProblem(changed, 4, 1);
      EXPECT_EQ(again.recipe, candidate) << changed;
      EXPECT_EQ(again.global_batch, 16) << changed;
    }
  }
}

TEST(CandidateTest, TextOmitsDefaults) {
  const TuneProblem problem = MakeTuneProblem(kRecipe, 2, 1);
  EXPECT_EQ(CandidateText(problem, problem.recipe), "micro-batch 16 x 1");
  EXPECT_EQ(CandidateText(problem, Make(2, 3, 1, 1, 1)),
            "micro-batch 2 x 8, ZeRO 3, recompute, offload optimizer");
  EXPECT_EQ(CandidateText(problem, Make(2, 0, 0, 0, 2)), "micro-batch 2 x 16, pipeline 2");
  EXPECT_EQ(CandidateText(problem, Make(2, 0, 0, 0, 1, 2)), "micro-batch 2 x 16, tensor 2");
  EXPECT_EQ(AxisHeads().size(), AxisCells(problem, problem.recipe).size());
}

TEST(CandidateTest, RecipeIsSimplerThanItsVariants) {
  EXPECT_EQ(ComplexityOf(Make(1, 0, 0, 0, 1)), ComplexityOf(Make(64, 0, 0, 0, 1)));
  EXPECT_LT(ComplexityOf(Make(1, 1, 0, 0, 1)), ComplexityOf(Make(1, 2, 0, 0, 1)));
  EXPECT_LT(ComplexityOf(Make(1, 3, 0, 0, 1)), ComplexityOf(Make(1, 0, 0, 0, 2)));
}

}  // namespace
}  // namespace dslaunch::candidate_test

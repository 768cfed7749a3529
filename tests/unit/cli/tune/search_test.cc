#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "cli/tune/tuning.h"

namespace dslaunch::search_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Words = std::vector<std::string>;

constexpr char kRecipe[] =
    R"({"model":{"type":"gpt2","vocab_size":256,"n_positions":64,"n_embd":32,"n_layer":2,"n_head":2},)"
    R"("data":{"type":"text","path":"t"},"run":{"steps":5},"engine":{"train_batch_size":16}})";

// Simulates jobs that end at once. A step takes 10 ms for each micro-batch in the arguments.
class FakeJobs : public JobRunner {
 public:
  JobRun Run(const Words& arguments, double) override {
    runs.push_back(arguments);
    JobRun run;
    run.wall_s = 1;
    if (runs.size() == interrupted_at) {
      run.signal = SIGINT;
      return run;
    }
    if (std::ranges::find(arguments, "--plan_memory") != arguments.end()) {
      run.out = plan;
      run.exit_code = plan_code;
      run.err = "dslaunch: the plan failed\n";
      return run;
    }
    const auto steps = std::ranges::find(arguments, "--steps") + 1;
    int micro_batches = 1;
    for (const std::string& word : arguments) {
      const std::string key = "engine.gradient_accumulation_steps=";
      if (word.starts_with(key)) micro_batches = std::stoi(word.substr(key.size()));
    }
    const std::vector<double> seconds(std::stoul(*steps), 0.01 * micro_batches);
    const std::vector<int> samples(seconds.size(), 16);
    run.out = nlohmann::json{{"trial", {{"step_s", seconds}, {"samples", samples}}}}.dump() + "\n";
    return run;
  }

  std::vector<Words> runs;
  size_t interrupted_at = 0;  // number of the interrupted run; 0 if none
  int plan_code = 0;
  std::string plan = "{\"plan\":{\"needs\":10,\"has\":20,\"passes\":5,\"on_gpu\":false}}\n";
};

TuneRequest Request() {
  TuneRequest request;
  request.problem = MakeTuneProblem(kRecipe, 2, 1);
  request.recipe_json = kRecipe;
  request.launch_words = {"-n", "2"};
  request.recipe_words = {"r.yaml"};
  request.budget_s = 1000;
  return request;
}

Result<TuneOutcome> RunSearch(FakeJobs& jobs, const TuneRequest& request = Request()) {
  return Search(
      request, jobs, [&jobs] { return static_cast<double>(jobs.runs.size()); },
      [](const Tuner&) { return Result<void>(); });
}

TEST(SearchTest, JobsAreTrainingsWithOptionsOfUser) {
  const TuneRequest request = Request();
  Candidate candidate = request.problem.recipe;
  candidate[Axis::kZeroStage] = 2;
  EXPECT_THAT(TrialArguments(request, request.problem, candidate, 7),
              ElementsAre("-n", "2", "--json", "--show", "0", "--max_restarts", "0", "train",
                          "r.yaml", "--steps", "7", "--set", "run.mode=trial", "--set",
                          "run.init_weights=", "--set", "engine.zero_optimization.stage=2"));
  EXPECT_THAT(PlanArguments(request, request.problem, candidate),
              ElementsAre("-n", "2", "--json", "--show", "0", "--max_restarts", "0", "train",
                          "r.yaml", "--plan_memory", "--metrics_jsonl", "/dev/stdout", "--set",
                          "engine.zero_optimization.stage=2"));
}

TEST(SearchTest, MeasuresUntilNothingIsPromising) {
  FakeJobs jobs;
  const Result<TuneOutcome> outcome = RunSearch(jobs);
  ASSERT_TRUE(outcome.ok());
  ASSERT_TRUE(outcome->best);
  EXPECT_EQ(AccumulationOf(outcome->problem, outcome->best->candidate), 1);
  EXPECT_EQ(outcome->reason, "no other configuration promises to be faster");
  EXPECT_EQ(outcome->signal, 0);
  EXPECT_GT(outcome->untried, 0u);
}

TEST(SearchTest, EndsAtSignalWithWhatItFound) {
  FakeJobs jobs;
  jobs.interrupted_at = 4;
  const Result<TuneOutcome> outcome = RunSearch(jobs);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->signal, SIGINT);
  EXPECT_EQ(jobs.runs.size(), 4u);
  EXPECT_TRUE(outcome->best);
  EXPECT_EQ(outcome->rows.size(), 1u);
}

TEST(SearchTest, EndsAtSignalDuringFirstPlan) {
  FakeJobs jobs;
  jobs.interrupted_at = 1;
  const Result<TuneOutcome> outcome = RunSearch(jobs);
  ASSERT_TRUE(outcome.ok());
  EXPECT_EQ(outcome->signal, SIGINT);
  EXPECT_FALSE(outcome->best);
}

TEST(SearchTest, FailsIfRecipeCannotBePlanned) {
  FakeJobs jobs;
  jobs.plan.clear();
  jobs.plan_code = 65;
  const Result<TuneOutcome> outcome = RunSearch(jobs);
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code, ExitCode::kBadInput);
  EXPECT_EQ(outcome.error().message, "the plan failed");
  EXPECT_EQ(jobs.runs.size(), 1u);
}

TEST(SearchTest, TriesNothingIfNothingFits) {
  FakeJobs jobs;
  jobs.plan = "{\"plan\":{\"needs\":30,\"has\":20,\"passes\":0,\"on_gpu\":false}}\n";
  const Result<TuneOutcome> outcome = RunSearch(jobs);
  ASSERT_TRUE(outcome.ok());
  EXPECT_FALSE(outcome->best);
  EXPECT_EQ(outcome->untried, 0u);
  for (const Words& words : jobs.runs) EXPECT_THAT(words, Contains("--plan_memory"));
}

}  // namespace
}  // namespace dslaunch::search_test

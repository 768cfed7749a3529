#include "cli/tune/tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "tests/support/random_seed.h"

namespace dslaunch::tuner_test {
namespace {

using ::testing::HasSubstr;

TuneProblem Problem(int64_t ranks = 2, int64_t batch = 64) {
  TuneProblem problem;
  problem.ranks = ranks;
  problem.global_batch = batch;
  problem.recipe[Axis::kMicroBatch] = batch / ranks;
  return problem;
}

std::vector<Candidate> SpaceOf(const TuneProblem& problem) {
  return CandidateSpace(problem, [](const Candidate&) { return true; });
}

constexpr double kStartS = 1.2;  // seconds of a trial without its steps

// Simulates nodes. The functions define each candidate's step time, memory and end.
struct Nodes {
  std::function<double(const Candidate&)> step_s = [](const Candidate&) { return 0.1; };
  std::function<PlanResult(const Candidate&)> plan = [](const Candidate&) { return PlanResult(); };
  std::function<TrialEnd(const Candidate&)> end = [](const Candidate&) {
    return TrialEnd::kMeasured;
  };
  std::function<double()> noise = [] { return 1.0; };

  std::vector<Candidate> tried = {};
  double elapsed_s = 0;

  // Runs the whole search and returns the reason why it ended.
  std::string Run(Tuner& tuner) {
    while (true) {
      const TuneAction action = tuner.Next(elapsed_s);
      if (const auto* end_of_search = std::get_if<TuningEnd>(&action)) return end_of_search->reason;
      if (const auto* next = std::get_if<PlanMemoryOf>(&action)) {
        tuner.OnPlan(next->candidate, plan(next->candidate));
      } else if (const auto* trial = std::get_if<RunTrialOf>(&action)) {
        tuner.OnTrialEnd(trial->candidate, Try(*trial));
      }
    }
  }

  TrialResult Try(const RunTrialOf& trial) {
    tried.push_back(trial.candidate);
    TrialResult result;
    result.end = end(trial.candidate);
    const double seconds = step_s(trial.candidate) * noise();
    for (int64_t i = kWarmUpSteps; i < trial.steps; ++i) result.steps_s.push_back(seconds);
    result.wall_s = kStartS + static_cast<double>(trial.steps) * seconds;
    if (result.end != TrialEnd::kMeasured) {
      result.steps_s.clear();
      result.cause = "of the test";
    }
    elapsed_s += result.wall_s;
    return result;
  }
};

// Returns step times that the tuner's formulas only approximate, with random effects of each value
// and of each candidate.
std::map<Candidate, double> Landscape(const TuneProblem& problem,
                                      const std::vector<Candidate>& space, Random& random) {
  const auto between = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(random.Between(0, 1000)) / 1000;
  };
  const auto effect = [&](double size) { return std::exp(between(-size, size)); };
  const double start = std::exp(between(std::log(0.05), std::log(8)));
  const double unit = std::exp(between(std::log(0.003), std::log(0.2)));
  const double cache = between(0, 0.12), recompute = between(1.15, 1.45);
  const double divided = between(0.02, 0.5);  // cost of the sums of a group of 2 ranks
  std::map<std::pair<size_t, int64_t>, double> of_value;
  std::map<Candidate, double> times;
  for (const Candidate& candidate : space) {
    const auto steps = static_cast<double>(AccumulationOf(problem, candidate));
    const auto stages = static_cast<double>(candidate[Axis::kPipeline]);
    const auto micro = static_cast<double>(candidate[Axis::kMicroBatch]);
    const auto parts = static_cast<double>(candidate[Axis::kTensor]);
    double time = (1 + parts * start / micro) * (1 + cache * std::max(0.0, std::log2(micro) - 2));
    if (candidate[Axis::kRecompute] == 1) time *= recompute;
    time *= (steps + stages - 1) / steps;
    const int64_t zero = candidate[Axis::kZeroStage];
    const double volume = zero == 3 ? 3 * steps : zero == 2 ? steps + 1 : 2;
    if (ReplicasOf(problem, candidate) > 1) time += unit * volume / (stages * parts);
    time += divided * (parts - 1) * (candidate[Axis::kRecompute] == 1 ? 1.4 : 1);
    for (size_t axis = 0; axis < kAxisCount; ++axis) {
      const auto [found, is_new] = of_value.try_emplace({axis, candidate.values[axis]}, 1);
      if (is_new) found->second = effect(axis == 0 ? 0.08 : 0.13);
      time *= found->second;
    }
    times[candidate] = 0.2 * time * effect(0.03);
  }
  return times;
}

TEST(TunerTest, FindsNearlyFastestInFifthOfFullSearch) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE("DSLAUNCH_TEST_SEED=" + std::to_string(seed));
  Random random(seed);
  constexpr int kLandscapes = 200;
  int slower = 0;
  double time = 0;
  for (int i = 0; i < kLandscapes; ++i) {
    const TuneProblem problem = Problem(i % 2 == 0 ? 2 : 4);
    const std::vector<Candidate> space = SpaceOf(problem);
    const std::map<Candidate, double> times = Landscape(problem, space, random);
    const auto steps = [](double s) {
      return kWarmUpSteps + std::clamp(std::ceil(1 / s), 5.0, 30.0);
    };
    double full_s = 0, fastest = 1e9;
    for (const auto& [candidate, seconds] : times) {
      full_s += kStartS + steps(seconds) * seconds;
      fastest = std::min(fastest, seconds);
    }
    Nodes nodes;
    nodes.step_s = [&](const Candidate& candidate) { return times.at(candidate); };
    nodes.noise = [&] { return 1 + static_cast<double>(random.Between(-15, 15)) / 1000; };
    Tuner tuner(problem, space, 1e6);
    nodes.Run(tuner);
    ASSERT_NE(tuner.best(), nullptr);
    slower += times.at(tuner.best()->candidate) > 1.05 * fastest ? 1 : 0;
    time += nodes.elapsed_s / full_s;
  }
  EXPECT_LE(slower, kLandscapes / 20);
  EXPECT_LT(time / kLandscapes, 0.2);
}

TEST(TuneRowTest, NoiseIsMedianAbsoluteDeviation) {
  TuneRow row;
  row.steps_s = {1.0, 1.1, 0.9, 1.0, 9.0};
  EXPECT_DOUBLE_EQ(StepSeconds(row), 1);
  EXPECT_NEAR(StepNoise(row), 0.14826, 1e-9);
}

TEST(TunerTest, TriesRecipeFirst) {
  const TuneProblem problem = Problem();
  Tuner tuner(problem, SpaceOf(problem), 1000);
  Nodes nodes;
  nodes.Run(tuner);
  EXPECT_EQ(nodes.tried.front(), problem.recipe);
  EXPECT_FALSE(tuner.rows().front().predicted_s);
  EXPECT_TRUE(tuner.rows().back().predicted_s);
}

TEST(TunerTest, SameResultsGiveSameSearch) {
  const TuneProblem problem = Problem(4);
  std::vector<Candidate> tried[2];
  for (std::vector<Candidate>& one : tried) {
    Random random(7);
    const std::map<Candidate, double> times = Landscape(problem, SpaceOf(problem), random);
    Tuner tuner(problem, SpaceOf(problem), 1000);
    Nodes nodes;
    nodes.step_s = [&](const Candidate& candidate) { return times.at(candidate); };
    nodes.Run(tuner);
    one = nodes.tried;
  }
  EXPECT_EQ(tried[0], tried[1]);
}

TEST(TunerTest, NeverTriesTwiceExceptFinalists) {
  const TuneProblem problem = Problem();
  Tuner tuner(problem, SpaceOf(problem), 1e6);
  Nodes nodes;
  nodes.Run(tuner);
  std::map<Candidate, int> count;
  for (const Candidate& candidate : nodes.tried) ++count[candidate];
  const auto twice = std::ranges::count_if(count, [](const auto& one) { return one.second == 2; });
  EXPECT_LE(static_cast<size_t>(twice), kFinalists);
  EXPECT_EQ(std::ranges::count_if(count, [](const auto& one) { return one.second > 2; }), 0);
}

TEST(TunerTest, TieGoesToSimplerConfiguration) {
  const TuneProblem problem = Problem();
  Candidate zero_1 = problem.recipe;
  zero_1[Axis::kZeroStage] = 1;
  Candidate zero_2 = problem.recipe;
  zero_2[Axis::kZeroStage] = 2;
  for (const auto& [recipe_s, chosen] : {std::pair(0.0998, problem.recipe), {0.2, zero_1}}) {
    Nodes nodes;
    nodes.step_s = [&, slow = recipe_s](const Candidate& candidate) {
      if (candidate == problem.recipe) return slow;
      if (candidate == zero_1) return 0.0995;
      return candidate == zero_2 ? 0.099 : 0.3;
    };
    Tuner tuner(problem, {problem.recipe, zero_1, zero_2}, 1e6);
    nodes.Run(tuner);
    EXPECT_EQ(tuner.best()->candidate, chosen);
  }
}

TEST(TunerTest, FinalistsAreMeasuredAgain) {
  const TuneProblem problem = Problem();
  Candidate lucky = problem.recipe;
  lucky[Axis::kZeroStage] = 1;
  Nodes nodes;
  nodes.step_s = [&](const Candidate& candidate) {
    if (candidate != lucky) return 0.1;
    return std::ranges::count(nodes.tried, lucky) == 1 ? 0.097 : 0.14;
  };
  Tuner tuner(problem, {problem.recipe, lucky}, 1e6);
  nodes.Run(tuner);
  EXPECT_EQ(nodes.tried.size(), 4u);
  EXPECT_EQ(tuner.best()->candidate, problem.recipe);
  EXPECT_EQ(tuner.best()->trials, 2);
}

TEST(TunerTest, DoesNotTryWhatDoesNotFit) {
  const TuneProblem problem = Problem(2, 64);
  Nodes nodes;
  // States take 100 bytes, which ZeRO 3 divides, and each sample takes 10 bytes.
  nodes.plan = [](const Candidate& candidate) {
    PlanResult plan;
    plan.passes_bytes = 10 * candidate[Axis::kMicroBatch];
    if (candidate[Axis::kRecompute] == 1) plan.passes_bytes /= 4;
    const int64_t shares = candidate[Axis::kZeroStage] == 3 ? 2 : candidate[Axis::kPipeline];
    plan.needs_bytes = 100 / shares + plan.passes_bytes;
    plan.has_bytes = 90;
    return plan;
  };
  Tuner tuner(problem, SpaceOf(problem), 1e6);
  nodes.Run(tuner);
  for (const Candidate& candidate : nodes.tried) EXPECT_LE(nodes.plan(candidate).needs_bytes, 90);
  ASSERT_NE(tuner.best(), nullptr);
  EXPECT_EQ(tuner.rows().front().end, TrialEnd::kDoesNotFit);
  EXPECT_EQ(tuner.rows().front().needs_bytes, 420);
  EXPECT_GT(tuner.dropped(), 10u);
}

TEST(TunerTest, OutOfMemoryDropsLargerMicroBatches) {
  const TuneProblem problem = Problem(2, 64);
  Nodes nodes;
  nodes.end = [](const Candidate& candidate) {
    return candidate[Axis::kMicroBatch] > 4 ? TrialEnd::kOutOfMemory : TrialEnd::kMeasured;
  };
  nodes.step_s = [](const Candidate& candidate) {
    return 1.0 / static_cast<double>(candidate[Axis::kMicroBatch]);
  };
  Tuner tuner(problem, SpaceOf(problem), 1e6);
  nodes.Run(tuner);
  EXPECT_EQ(tuner.best()->candidate[Axis::kMicroBatch], 4);
  // The recipe's micro-batch is 32. After 32 has failed, the same candidate with 64 must never be
  // tried.
  for (const Candidate& candidate : nodes.tried) {
    for (const Candidate& earlier : nodes.tried) {
      if (&earlier >= &candidate || nodes.end(earlier) == TrialEnd::kMeasured) continue;
      Candidate same = earlier;
      same[Axis::kMicroBatch] = candidate[Axis::kMicroBatch];
      EXPECT_FALSE(same == candidate && candidate[Axis::kMicroBatch] > earlier[Axis::kMicroBatch]);
    }
  }
}

TEST(TunerTest, DropsValueThatAlwaysFails) {
  const TuneProblem problem = Problem();
  Nodes nodes;
  nodes.end = [](const Candidate& candidate) {
    return candidate[Axis::kPipeline] > 1 ? TrialEnd::kFailed : TrialEnd::kMeasured;
  };
  nodes.step_s = [](const Candidate& candidate) {
    return candidate[Axis::kPipeline] > 1 ? 0.01 : 0.1;
  };
  Tuner tuner(problem, SpaceOf(problem), 1e6);
  nodes.Run(tuner);
  EXPECT_EQ(std::ranges::count_if(nodes.tried,
                                  [](const Candidate& one) { return one[Axis::kPipeline] > 1; }),
            2);
  EXPECT_NE(tuner.best(), nullptr);
}

TEST(TunerTest, EndsIfEverythingFails) {
  const TuneProblem problem = Problem();
  Nodes nodes;
  nodes.end = [](const Candidate&) { return TrialEnd::kFailed; };
  Tuner tuner(problem, SpaceOf(problem), 1e6);
  EXPECT_EQ(nodes.Run(tuner), "the first 3 trials failed");
  EXPECT_EQ(tuner.best(), nullptr);
  EXPECT_EQ(nodes.tried.size(), 3u);
}

TEST(TunerTest, StaysWithinBudget) {
  const TuneProblem problem = Problem();
  for (const double budget_s : {5.0, 12.0, 30.0}) {
    Nodes nodes;
    Tuner tuner(problem, SpaceOf(problem), budget_s);
    const std::string reason = nodes.Run(tuner);
    EXPECT_LE(nodes.elapsed_s, budget_s);
    if (budget_s < 20) EXPECT_THAT(reason, HasSubstr("--budget"));
    EXPECT_NE(tuner.best(), nullptr);
  }
}

TEST(TunerTest, LimitsTrialsByWhatEarlierOnesTook) {
  const TuneProblem problem = Problem();
  Tuner tuner(problem, SpaceOf(problem), 1000);
  const auto next_trial = [&](double elapsed_s) {
    TuneAction action = tuner.Next(elapsed_s);
    while (const auto* plan = std::get_if<PlanMemoryOf>(&action)) {
      tuner.OnPlan(plan->candidate, {});
      action = tuner.Next(elapsed_s);
    }
    return std::get<RunTrialOf>(action);
  };
  const RunTrialOf first = next_trial(0);
  EXPECT_DOUBLE_EQ(first.limit_s, 1000);
  tuner.OnTrialEnd(first.candidate, {.steps_s = {1, 1, 1, 1, 1}, .wall_s = 20});
  EXPECT_NEAR(next_trial(20).limit_s, 100, 30);
}

TEST(TunerTest, DoesNotRepeatFinishedTrials) {
  const TuneProblem problem = Problem();
  Random random(3);
  const std::map<Candidate, double> times = Landscape(problem, SpaceOf(problem), random);
  Nodes whole;
  whole.step_s = [&](const Candidate& candidate) { return times.at(candidate); };
  Tuner tuner(problem, SpaceOf(problem), 1e6);
  whole.Run(tuner);

  Nodes begun = {.step_s = whole.step_s};
  Tuner first(problem, SpaceOf(problem), 8);
  begun.Run(first);
  Nodes resumed = {.step_s = whole.step_s};
  Tuner second(problem, SpaceOf(problem), 1e6, first.rows());
  resumed.Run(second);
  EXPECT_FALSE(first.rows().empty());
  for (const TuneRow& row : first.rows()) {
    // A finalist may be measured again.
    EXPECT_LE(std::ranges::count(resumed.tried, row.candidate), 1);
  }
  EXPECT_EQ(begun.tried.size() + resumed.tried.size(), whole.tried.size());
  EXPECT_EQ(second.best()->candidate, tuner.best()->candidate);
}

}  // namespace
}  // namespace dslaunch::tuner_test

#include "trainer/train/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

namespace dslaunch::progress_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ProgressTest : public ::testing::Test {
 protected:
  ProgressTest() { close(mkstemp(file_.data())); }
  ~ProgressTest() override { unlink(file_.c_str()); }

  Progress::Options Options() const {
    Progress::Options options;
    options.metrics_jsonl = file_;
    options.tokens_per_sample = 8;
    return options;
  }
  std::vector<nlohmann::json> Metrics() const {
    std::vector<nlohmann::json> lines;
    std::ifstream file(file_);
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  static AllWindows Alone(const Progress& progress) { return Combine({progress.Window()}); }

  Schedule schedule_ = {.batches_per_epoch = 10, .total_steps = 20, .exchange_each = true};
  std::string file_ = testing::TempDir() + "/progress-XXXXXX";
};

TEST_F(ProgressTest, WritesMetricsOfStep) {
  Progress progress(Options());
  progress.Start(schedule_, 100);
  progress.AddStep(
      {.step = 1, .loss = 2.5, .samples = 4, .lr = 0.1, .grad_norm = 3, .loss_scale = 64});
  AllWindows all = Alone(progress);
  all.memory.peak_rss = 77;
  progress.EndWindow(all);
  const auto lines = Metrics();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["loss"], 2.5);
  EXPECT_EQ(lines[0]["samples"], 104);
  EXPECT_EQ(lines[0]["tokens"], 832);
  EXPECT_EQ(lines[0]["loss_scale"], 64);
  EXPECT_EQ(lines[0]["skipped"], false);
  EXPECT_EQ(lines[0]["memory"]["peak_rss"], 77);
  EXPECT_NEAR(lines[0]["tokens_per_s"].get<double>(), 8 * lines[0]["samples_per_s"].get<double>(),
              1e-6 * lines[0]["tokens_per_s"].get<double>());
}

TEST_F(ProgressTest, WindowReportsMeanOfItsSteps) {
  Progress progress(Options());
  progress.Start(schedule_, 100);
  progress.AddStep({.step = 1, .loss = 1, .samples = 4});
  progress.AddStep({.step = 2, .loss = 2, .samples = 4});
  EXPECT_EQ(progress.window_steps(), 2);
  progress.EndWindow(Alone(progress));
  EXPECT_EQ(progress.window_steps(), 0);
  EXPECT_EQ(progress.samples(), 108);
  EXPECT_EQ(Metrics()[0]["loss"], 1.5);
}

TEST_F(ProgressTest, ReportsModelFlopsUtilization) {
  Progress progress(Options());
  progress.Start(schedule_, 100);
  progress.AddStep({.step = 1, .loss = 1, .samples = 4});
  progress.EndWindow(Alone(progress));
  progress.SetFlops(/*per_step=*/6e9, /*peak_per_s=*/2e12);
  progress.AddStep({.step = 2, .loss = 1, .samples = 4});
  progress.AddStep({.step = 3, .loss = 1, .samples = 4});
  progress.EndWindow(Alone(progress));
  const auto lines = Metrics();
  EXPECT_FALSE(lines[0].contains("mfu")) << "nobody knew the model's work yet";
  EXPECT_EQ(lines[1]["steps"], 2);
  EXPECT_NEAR(lines[1]["mfu"].get<double>() * lines[1]["step_s"].get<double>(), 3e-3, 1e-12);
}

TEST_F(ProgressTest, WritesTimesOfEachRankToItsFolder) {
  Progress::Options options = Options();
  options.rank_dir = testing::TempDir() + "/rank-XXXXXX";
  ASSERT_NE(mkdtemp(options.rank_dir.data()), nullptr);
  options.rank = 1;
  options.log = TrainLog(1, EngineLogLevel::kInfo);
  Progress progress(options);
  progress.Start(schedule_, 100);
  progress.AddStep({.step = 1, .loss = 1, .samples = 4, .compute_s = 0.5});
  progress.AddStep({.step = 2, .loss = 1, .samples = 4, .compute_s = 0.25});
  progress.EndWindow(Alone(progress));
  EXPECT_TRUE(Metrics().empty()) << "metrics_jsonl is rank 0's";
  file_ = options.rank_dir + "/metrics.jsonl";
  const auto lines = Metrics();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["step"], 2);
  EXPECT_EQ(lines[0]["compute_s"], 0.375);
  EXPECT_FALSE(lines[0].contains("loss"));
}

TEST_F(ProgressTest, ContinuesWithoutMissingReportFolder) {
  Progress::Options options = Options();
  options.rank_dir = "/no/such/folder";
  testing::internal::CaptureStdout();
  Progress progress(options);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), HasSubstr("no metrics for the job's report"));
  progress.Start(schedule_, 100);
  progress.AddStep({.step = 1, .loss = 1, .samples = 4});
  progress.EndWindow(Alone(progress));
  EXPECT_EQ(Metrics().size(), 1u);
}

TEST_F(ProgressTest, NamesNonFiniteLossUnlessStepWasSkipped) {
  Progress progress(Options());
  progress.Start(schedule_, 100);
  testing::internal::CaptureStdout();
  progress.AddStep({.step = 3, .loss = NAN, .skipped = true, .skip_reason = "scale 8 -> 4"});
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "step 3 was skipped: scale 8 -> 4\n");
  EXPECT_FALSE(progress.Window().diverged);
  EXPECT_EQ(progress.Window().bad_steps, 1);
  progress.EndWindow(Alone(progress));
  EXPECT_EQ(Metrics()[0]["loss"], nullptr);
  EXPECT_EQ(Metrics()[0]["skipped"], true);
  progress.AddStep({.step = 4, .loss = INFINITY});
  progress.AddStep({.step = 5, .loss = NAN});
  ASSERT_TRUE(progress.Window().diverged);
  EXPECT_EQ(progress.Window().diverged->step, 4);
}

// With a static loss scale in bf16, training itself changes nothing that could make the next step
// succeed.
TEST_F(ProgressTest, ManySkippedStepsInARowAreDivergence) {
  Progress::Options options = Options();
  options.log = TrainLog(0, EngineLogLevel::kError);
  Progress progress(options);
  progress.Start(schedule_, 0);
  const auto skip = [&](int64_t step) {
    progress.AddStep({.step = step, .loss = 2, .skipped = true});
  };
  for (int64_t step = 1; step < kMostBadSteps; ++step) skip(step);
  progress.AddStep({.step = kMostBadSteps, .loss = 2});
  EXPECT_FALSE(progress.Window().diverged) << "it went on";
  EXPECT_EQ(progress.Window().bad_steps, 0);
  for (int64_t step = 1; step <= kMostBadSteps; ++step) skip(10 + step);
  ASSERT_TRUE(progress.Window().diverged);
  EXPECT_EQ(progress.Window().diverged->step, 11);
  EXPECT_EQ(progress.Window().diverged->steps, kMostBadSteps);
}

TEST_F(ProgressTest, OnlyNonFiniteLossIsDivergenceWhileScaleFalls) {
  Progress::Options options = Options();
  options.log = TrainLog(0, EngineLogLevel::kError);
  options.loss_scale_adapts = true;
  Progress progress(options);
  progress.Start(schedule_, 0);
  for (int64_t step = 1; step <= 12; ++step)
    progress.AddStep({.step = step, .loss = 2, .skipped = true});
  EXPECT_FALSE(progress.Window().diverged);
  EXPECT_EQ(progress.Window().bad_steps, 0);
  for (int64_t step = 13; step < 13 + kMostBadSteps; ++step)
    progress.AddStep({.step = step, .loss = NAN, .skipped = true});
  ASSERT_TRUE(progress.Window().diverged);
  EXPECT_EQ(progress.Window().diverged->step, 13);
}

TEST_F(ProgressTest, ShortRunWithoutUpdateIsDivergence) {
  schedule_.total_steps = 2;
  Progress::Options options = Options();
  options.log = TrainLog(0, EngineLogLevel::kError);
  Progress progress(options);
  progress.Start(schedule_, 0);
  progress.AddStep({.step = 1, .loss = 2, .skipped = true});
  EXPECT_FALSE(progress.Window().diverged);
  progress.AddStep({.step = 2, .loss = 2, .skipped = true});
  EXPECT_TRUE(progress.Window().diverged);
}

TEST_F(ProgressTest, EpochMeanExcludesSkippedSteps) {
  schedule_.total_steps = 2;
  schedule_.print_every = 2;
  Progress progress(Options());
  progress.Start(schedule_, 100);
  testing::internal::CaptureStdout();
  progress.AddStep({.step = 1, .loss = NAN, .samples = 4, .skipped = true});
  progress.EndWindow(Alone(progress));
  progress.AddStep({.step = 2, .loss = 3, .samples = 4});
  progress.EndWindow(Alone(progress));
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              AllOf(HasSubstr("step 2/2: loss 3.0000, lr 0, "),
                    HasSubstr("epoch 1/1: loss 3.0000, "), HasSubstr(" tokens/s\n")));
}

}  // namespace
}  // namespace dslaunch::progress_test

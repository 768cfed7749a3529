#include "cli/report/report_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace dslaunch::report_files_test {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(ReportFilesTest, ReadsMetricsLineByLine) {
  const RankMetrics metrics = ReadMetrics(
      R"({"step":10,"steps":10,"attempt":1,"step_s":0.5,"compute_s":0.4,"loss":3.5,"lr":1e-3,)"
      R"("grad_norm":2,"loss_scale":65536,"skipped":true,"samples_per_s":64,"tokens_per_s":0,)"
      R"("mfu":0.41,"epoch":1,"memory":{"parameters":100,"peak_rss":900},"new":[1]})"
      "\n"
      R"({"step":20,"loss":2,"memory":{"parameters":50,"optimizer":7}})"
      "\n");
  ASSERT_EQ(metrics.points.size(), 2u);
  EXPECT_EQ(metrics.bad_lines, 0u);
  const MetricsPoint& point = metrics.points[0];
  EXPECT_EQ(point.step, 10);
  EXPECT_EQ(point.step_s, 0.5);
  EXPECT_EQ(point.compute_s, 0.4);
  EXPECT_EQ(point.loss, 3.5);
  EXPECT_EQ(point.lr, 1e-3);
  EXPECT_EQ(point.grad_norm, 2);
  EXPECT_EQ(point.loss_scale, 65536);
  EXPECT_TRUE(point.skipped);
  EXPECT_EQ(point.mfu, 0.41);
  EXPECT_EQ(point.data_epoch, 1);
  EXPECT_TRUE(std::isnan(metrics.points[1].mfu)) << "not reported";
  EXPECT_FALSE(metrics.points[1].skipped);
  EXPECT_THAT(metrics.memory,
              ElementsAre(Pair("parameters", 100), Pair("peak_rss", 900), Pair("optimizer", 7)))
      << "of each category the most";
}

TEST(ReportFilesTest, SeparatesEvaluationsFromTrainingSteps) {
  const RankMetrics metrics = ReadMetrics(
      "{\"step\":10,\"loss\":3.5}\n"
      "{\"step\":10,\"attempt\":1,\"epoch\":1,\"eval\":{\"loss\":2.5,\"accuracy\":0.5}}\n"
      "{\"step\":20,\"eval\":{\"loss\":null,\"perplexity\":7}}\n"
      "{\"step\":20,\"eval\":3}\n");
  ASSERT_EQ(metrics.points.size(), 2u) << "eval of a program's own kind is ignored";
  ASSERT_EQ(metrics.evals.size(), 2u);
  EXPECT_EQ(metrics.evals[0].step, 10);
  EXPECT_EQ(metrics.evals[0].loss, 2.5);
  EXPECT_EQ(metrics.evals[0].accuracy, 0.5);
  EXPECT_TRUE(std::isnan(metrics.evals[0].perplexity));
  EXPECT_TRUE(std::isnan(metrics.evals[1].loss));
  EXPECT_EQ(metrics.evals[1].perplexity, 7);
}

TEST(ReportFilesTest, CountsAndSkipsBadLines) {
  const RankMetrics metrics =
      ReadMetrics("{\"step\":1}\nnot json\n[1]\n{\"step\":\n\n\x80\n{\"step\":2}\n{\"step\":3");
  EXPECT_EQ(metrics.points.size(), 2u) << "the last line is still being written";
  EXPECT_EQ(metrics.bad_lines, 4u);
  EXPECT_EQ(ReadMetrics(std::string(3 << 20, '[') + "\n").bad_lines, 1u);
  EXPECT_EQ(ReadMetrics("{\"step\":" + std::string(100'000, '[') + "\n").bad_lines, 1u);
}

TEST(ReportFilesTest, ReadsInvalidNumbersAsNotRecorded) {
  const RankMetrics metrics = ReadMetrics(
      "{\"step\":1,\"loss\":NaN,\"lr\":-Infinity,\"name\":\"a \\\" NaN\"}\n"
      "{\"step\":2,\"loss\":null}\n"
      "{\"step\":3,\"loss\":1e300,\"step_s\":-1,\"grad_norm\":\"2\"}\n"
      "{\"step\":-4,\"loss\":1}\n");
  ASSERT_EQ(metrics.points.size(), 3u) << "there is no step -4";
  for (const MetricsPoint& point : metrics.points) {
    EXPECT_TRUE(std::isnan(point.loss));
    EXPECT_TRUE(point.loss_is_bad);
  }
  EXPECT_TRUE(std::isnan(metrics.points[0].lr));
  EXPECT_TRUE(std::isnan(metrics.points[2].step_s)) << "no time is negative";
  EXPECT_TRUE(std::isnan(metrics.points[2].grad_norm));
}

TEST(ReportFilesTest, ReadsAndSanitizesRunInfo) {
  const std::optional<ReportedRun> run = ReadRunInfo(
      R"({"model":"gpt2\u001b[31m\nx","parameters":124439808,"dtype":"fp32","world_size":2,)"
      R"("zero_stage":0,"flops_per_step":1.2e12,"memory_plan":{"parameters":5,"x":-1,"y":"z"}})");
  ASSERT_TRUE(run);
  EXPECT_EQ(run->model, "gpt2x") << "one harmless line";
  EXPECT_EQ(run->parameters, 124439808);
  EXPECT_EQ(run->zero_stage, 0);
  EXPECT_THAT(run->memory_plan, ElementsAre(Pair("parameters", 5)));
  EXPECT_FALSE(ReadRunInfo(""));
  EXPECT_FALSE(ReadRunInfo("[]"));
  EXPECT_TRUE(ReadRunInfo("{\"model\":7}")->model.empty());
}

TEST(ReportFilesTest, ReadsProfile) {
  const std::optional<RankProfile> profile = ReadRankProfile(
      R"({"rank":0,"steps":3,"wall_s":1.5,"operators":[)"
      R"({"name":"aten::mm","calls":36,"self_s":0.41,"total_s":0.5,"self_bytes":1024},7,{}],)"
      R"("communication":{"total_s":0.2,"hidden_s":0.15,"kinds":[)"
      R"({"name":"all_reduce","calls":4,"bytes":4194304,"s":0.2}]}})");
  ASSERT_TRUE(profile);
  EXPECT_EQ(profile->steps, 3);
  EXPECT_EQ(profile->wall_s, 1.5);
  ASSERT_EQ(profile->operators.size(), 2u);
  EXPECT_EQ(profile->operators[0].name, "aten::mm");
  EXPECT_EQ(profile->operators[0].self_s, 0.41);
  EXPECT_EQ(profile->operators[0].self_bytes, 1024);
  EXPECT_EQ(profile->communication_s, 0.2);
  EXPECT_EQ(profile->hidden_s, 0.15);
  ASSERT_EQ(profile->kinds.size(), 1u);
  EXPECT_EQ(profile->kinds[0].kind, "all_reduce");
  EXPECT_EQ(profile->kinds[0].bytes, 4194304);
  EXPECT_EQ(ReadRankProfile("{\"steps\":0}")->steps, 1) << "nothing is divided by 0";
}

TEST(ReportFilesTest, ReadsEventsOfRestartedJob) {
  const JobEvents events = ReadJobEvents(
      R"({"t":100.5,"event":"plan","job":"x"})"
      "\n"
      R"({"t":101,"event":"started","node":"a","attempt":1,"world_size":4,"nodes":["a","b"]})"
      "\n"
      R"({"t":101.2,"event":"started","node":"b","attempt":1,"world_size":4,"nodes":["a","b"]})"
      "\n"
      R"({"t":110,"event":"restarting","node":"a","attempt":1,"cause":{"message":"rank 3 died"},)"
      R"("reason":"1 of 3 restarts"})"
      "\n"
      R"({"t":111,"event":"started","node":"a","attempt":2,"world_size":2,"nodes":["a"]})"
      "\nrubbish\n"
      R"({"t":120,"event":"end","exit_code":7,"cause":{"message":"rank 0 exited 7"},"duration_s":19})"
      "\n");
  ASSERT_EQ(events.starts.size(), 2u);
  EXPECT_EQ(events.starts[0].t, 101);
  EXPECT_EQ(events.starts[1].world_size, 2);
  EXPECT_THAT(events.starts[0].nodes, ElementsAre("a", "b"));
  ASSERT_EQ(events.restarts.size(), 1u);
  EXPECT_EQ(events.restarts[0].cause, "rank 3 died");
  EXPECT_EQ(events.cause, "rank 0 exited 7");
  EXPECT_EQ(events.bad_lines, 1u);
}

}  // namespace
}  // namespace dslaunch::report_files_test

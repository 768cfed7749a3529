#include "trainer/train/report.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "trainer/base/train_error.h"

namespace dslaunch::report_test {
namespace {

std::string ReadAvailable(int fd) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<size_t>(n));
  return text;
}

size_t Lines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(ReportTest, EvaluationLineShowsMetricOfItsKind) {
  using Kind = EvaluationSums::Kind;
  EXPECT_EQ(EvaluationLine("test", {Kind::kClasses, 3512.4, 10000, 8712}),
            "test accuracy 87.12% (8712 of 10000), loss 0.3512");
  EXPECT_EQ(EvaluationLine("step 5: test", {Kind::kTokens, 512.0, 256, 0}),
            "step 5: test perplexity 7.389, loss 2.0000 (256 tokens)");
  EXPECT_EQ(EvaluationLine("test", {Kind::kAnswers, 512.0, 256, 0}),
            "test perplexity 7.389, loss 2.0000 (256 tokens of answers)");
  EXPECT_EQ(EvaluationLine("test", {Kind::kOther, 5, 10, 0}), "test loss 0.5000 (10 samples)");
}

TEST(ReportTest, ReportsNotableWaitsForData) {
  EXPECT_EQ(DataWaitLine(4, 100), "");
  EXPECT_EQ(DataWaitLine(0.9, 1), "") << "who cares about a second";
  EXPECT_EQ(DataWaitLine(30, 100),
            "waited 30.0 s of 100.0 s for data; a higher data.prefetch or a faster disk may help");
}

TEST(ReportTest, ReportsPeakMemoryOfThisProcess) {
  EXPECT_GT(PeakRssBytes(), 1 << 20);
  EXPECT_LT(PeakRssBytes(), int64_t{1} << 32);
}

TEST(ReportTest, LimitsRateOfStepLinesExceptLast) {
  std::array<int, 2> ends;
  ASSERT_EQ(pipe(ends.data()), 0);
  UniqueFd reader(ends[0]);
  StatusPipe status(ends[1]);
  status.Ready();
  const auto start = Clock::now();
  constexpr int64_t kSteps = 2000;
  for (int64_t step = 1; step <= kSteps; ++step) {
    status.Step({.event = StatusLine::Event::kStep,
                 .step = step,
                 .total_steps = kSteps,
                 .loss = 1.0,
                 .samples_per_s = {}});
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const std::string text = ReadAvailable(reader.get());
  EXPECT_TRUE(text.starts_with("{\"event\":\"ready\"}\n")) << text;
  EXPECT_NE(text.find("\"step\":2000,"), std::string::npos) << text;
  EXPECT_GE(Lines(text), 3u);
  EXPECT_LE(Lines(text), 4 + seconds * 10);
}

TEST(ReportTest, SlowOrClosedReaderDoesNotBlockTraining) {
  const auto old = std::signal(SIGPIPE, SIG_IGN);
  std::array<int, 2> ends;
  ASSERT_EQ(pipe(ends.data()), 0);
  UniqueFd reader(ends[0]);
  StatusPipe status(ends[1]);
  for (int i = 0; i < 10'000; ++i) status.Ready();  // more than fits into a pipe
  reader.Reset();
  status.Ready();
  status.Ready();
  std::signal(SIGPIPE, old);
}

TEST(ReportTest, AppendsMetricsInFullPrecision) {
  std::string file = testing::TempDir() + "/metrics-XXXXXX";
  close(mkstemp(file.data()));
  for (int run = 0; run < 2; ++run) {
    MetricsFile(file, "o").Append(MetricsJson({.step = run,
                                               .attempt = 2,
                                               .epoch = 1,
                                               .loss = 1.0 / 3,
                                               .lr = 0.1,
                                               .grad_norm = 2,
                                               .loss_scale = 1024,
                                               .skipped = run == 1,
                                               .samples = 64,
                                               .tokens = 640,
                                               .steps = 2,
                                               .step_s = 0.5,
                                               .compute_s = 0.25,
                                               .samples_per_s = 128,
                                               .tokens_per_s = 1280,
                                               .memory = {1, 2, 6, 3, 4, 7, 0, 5}}));
  }
  UniqueFd fd(open(file.c_str(), O_RDONLY));
  const auto line = [](int step, const char* skipped) {
    return Format(
        R"({"step":%d,"attempt":2,"epoch":1,"loss":0.3333333333333333,"lr":0.1,"grad_norm":2.0,)"
        R"("loss_scale":1024.0,"skipped":%s,"samples":64,"tokens":640,"steps":2,"step_s":0.5,)"
        R"("compute_s":0.25,"samples_per_s":128.0,"tokens_per_s":1280.0,"memory":{"parameters":1,"gradients":2,)"
        R"("buckets":6,"optimizer":3,"buffers":4,"activations":7,"peak_rss":5}})"
        "\n",
        step, skipped);
  };
  EXPECT_EQ(ReadAvailable(fd.get()), line(0, "false") + line(1, "true"));
  unlink(file.c_str());
}

TEST(ReportTest, RankMetricsContainTimesOfRank) {
  EXPECT_EQ(OwnMetricsJson({.step = 20, .loss = 3, .steps = 10, .step_s = 0.5, .compute_s = 0.25}),
            R"({"step":20,"steps":10,"attempt":1,"step_s":0.5,"compute_s":0.25})");
  EXPECT_EQ(OwnMetricsJson({.step = 20, .steps = 10, .step_s = 0.5}),
            R"({"step":20,"steps":10,"attempt":1,"step_s":0.5})")
      << "a pipeline's work is not known";
}

TEST(ReportTest, ThrowsOnFullDisk) {
  MetricsFile metrics("/dev/full", "o");
  EXPECT_THROW(metrics.Append("{}"), TrainError);
}

}  // namespace
}  // namespace dslaunch::report_test

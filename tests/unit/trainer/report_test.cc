#include "trainer/program/report.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "trainer/train_error.h"

namespace dslaunch {
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

TEST(ReportTest, AccuracyLine) {
  EXPECT_EQ(AccuracyLine("test", 8712, 10000, 0.35124),
            "test accuracy 87.12% (8712 of 10000), loss 0.3512");
}

TEST(ReportTest, StepLinesAreRateLimitedButTheLastIsNot) {
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

TEST(ReportTest, AReaderThatIsSlowOrGoneDoesNotStopTheTrainer) {
  const auto old = std::signal(SIGPIPE, SIG_IGN);
  std::array<int, 2> ends;
  ASSERT_EQ(pipe(ends.data()), 0);
  UniqueFd reader(ends[0]);
  StatusPipe status(ends[1]);
  for (int i = 0; i < 10'000; ++i) status.Ready();  // more than a pipe holds
  reader.Reset();
  status.Ready();
  status.Ready();
  std::signal(SIGPIPE, old);
}

TEST(ReportTest, MetricsAreAppendedInFullPrecision) {
  std::string file = testing::TempDir() + "/metrics-XXXXXX";
  close(mkstemp(file.data()));
  for (int run = 0; run < 2; ++run) {
    MetricsFile(file).Append({.step = run,
                              .attempt = 2,
                              .epoch = 1,
                              .loss = 1.0 / 3,
                              .lr = 0.1,
                              .grad_norm = 2,
                              .samples = 64,
                              .step_s = 0.5,
                              .samples_per_s = 128});
  }
  UniqueFd fd(open(file.c_str(), O_RDONLY));
  EXPECT_EQ(ReadAvailable(fd.get()),
            "{\"step\":0,\"attempt\":2,\"epoch\":1,\"loss\":0.3333333333333333,\"lr\":0.1,\"grad_"
            "norm\":2.0,"
            "\"samples\":64,"
            "\"step_s\":0.5,\"samples_per_s\":128.0}\n"
            "{\"step\":1,\"attempt\":2,\"epoch\":1,\"loss\":0.3333333333333333,\"lr\":0.1,\"grad_"
            "norm\":2.0,"
            "\"samples\":64,"
            "\"step_s\":0.5,\"samples_per_s\":128.0}\n");
  unlink(file.c_str());
}

TEST(ReportTest, AFullDiskIsAnError) {
  MetricsFile metrics("/dev/full");
  EXPECT_THROW(metrics.Append({}), TrainError);
}

}  // namespace
}  // namespace dslaunch

#include "cli/top/job_screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iostream>
#include <sstream>

#include "cli/output/shown_width.h"
#include "tests/unit/cli/top/fake_job.h"

namespace dslaunch::job_screen_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kStarted = 1'790'000'000'000;

TopTime TimeOf(const FakeJob& job) { return {job.now(), kStarted + 3'723'000}; }

TopScreen DrawJob(FakeJob& job, size_t rows, size_t columns, const TopView& view = {}) {
  return Draw(job.model(), {"train-3f2a", kStarted}, view, TimeOf(job), rows, columns);
}

// Returns the screen as text. Each line begins with a letter for its style if that is not plain: B
// bold, H heading, C chosen, W warning.
std::string Text(const TopScreen& screen) {
  std::string text;
  for (const TopLine& line : screen.lines) {
    const TopStyle style = line.empty() ? TopStyle::kPlain : line.front().style;
    std::string joined(1, " BHCW"[static_cast<size_t>(style)]);
    joined += "|";
    for (const TopSpan& span : line) joined += span.text;
    text += joined.substr(0, joined.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

// Expects the screen to equal golden/NAME.txt.
void ExpectGolden(const std::string& name, const std::string& text) {
  std::ifstream file(std::string(DSLAUNCH_GOLDEN) + "/" + name + ".txt");
  std::ostringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(text, golden.str()) << "golden/" << name << ".txt\n" << text;
}

// Returns a job of two nodes with four ranks each, in which rank 6 is slow.
FakeJob GpuJob() {
  FakeJob job(2, 4, /*with_gpus=*/true);
  job.rank(6).set_median_compute_us(700'000);
  job.Turn();
  job.Turn();
  return job;
}

TEST(JobScreenTest, DrawsGpuJobOn80Columns) {
  FakeJob job = GpuJob();
  ExpectGolden("gpu_80x24", Text(DrawJob(job, 24, 80)));
}

TEST(JobScreenTest, DrawsGpuJobOnWideScreen) {
  FakeJob job = GpuJob();
  TopView view;
  view.open_nodes.insert(0);
  view.sort = TopSort::kPower;
  view.cursor = 2;
  ExpectGolden("gpu_132x43", Text(DrawJob(job, 43, 132, view)));
}

TEST(JobScreenTest, DrawsGpuJobOnNarrowScreen) {
  FakeJob job = GpuJob();
  ExpectGolden("gpu_60x15", Text(DrawJob(job, 15, 60)));
}

TEST(JobScreenTest, DrawsJobWithoutGpus) {
  FakeJob job(1, 2, /*with_gpus=*/false);
  job.Turn();
  job.Turn();
  TopView view;
  view.asks_to_stop = true;
  ExpectGolden("cpu_80x24", Text(DrawJob(job, 24, 80, view)));
}

TEST(JobScreenTest, DrawsStalledJob) {
  FakeJob job(2, 8, /*with_gpus=*/true);
  job.device(11).set_power_w(98);
  for (uint32_t rank = 0; rank < 16; ++rank) job.rank(rank).set_step_age_us(60'000'000);
  job.Turn();
  job.Turn();
  ExpectGolden("stalled_80x24", Text(DrawJob(job, 24, 80)));
}

TEST(JobScreenTest, DrawsBeforeFirstSample) {
  JobModel model({"node0", "node1"});
  model.OnLost(1, "node1: connection refused");
  const TopScreen screen = Draw(model, {"train-3f2a", kStarted}, {}, {}, 24, 80);
  ExpectGolden("connecting_80x24", Text(screen));
}

TEST(JobScreenTest, FoldsNodesThatAreAlike) {
  FakeJob job(1250, 8, /*with_gpus=*/true);
  job.device(5'005).set_throttle_reasons(0x40);
  job.Turn();
  job.Turn();
  const std::clock_t begin = std::clock();
  constexpr int kRedraws = 5;
  TopScreen screen;
  for (int i = 0; i < kRedraws; ++i) screen = DrawJob(job, 24, 80);
  const double ms = 1000.0 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC / kRedraws;
  std::cout << "CPU time of a redraw with 10,000 ranks: " << ms << " ms\n";
  EXPECT_LT(ms, 1000);
  ExpectGolden("folded_80x24", Text(screen));
}

TEST(JobScreenTest, EveryLineFitsAnyScreen) {
  FakeJob job = GpuJob();
  job.rank(0).set_last_line(std::string(300, 'x') + "\xe4\xb8\xad\xe6\x96\x87");
  job.Turn();
  TopView text;
  text.mode = TopView::Mode::kText;
  text.text.assign(50, std::string(200, 'y'));
  for (const TopView& view : {TopView(), text}) {
    for (size_t rows = 1; rows < 30; ++rows) {
      for (size_t columns = 1; columns < 140; columns += 3) {
        const TopScreen screen = DrawJob(job, rows, columns, view);
        EXPECT_LE(screen.lines.size(), rows);
        for (const TopLine& line : screen.lines) {
          int width = 0;
          for (const TopSpan& span : line) width += ShownWidth(span.text);
          EXPECT_LT(width, static_cast<int>(std::max<size_t>(columns, 2)));
        }
      }
    }
  }
}

TEST(JobScreenTest, PrintsWholeTableAsText) {
  FakeJob job = GpuJob();
  const std::string text = TopText(job.model(), {"train-3f2a", kStarted}, TimeOf(job), 120);
  ExpectGolden("text_120", text);
  EXPECT_THAT(text, HasSubstr("! rank 6 (node1): own work 0.7 s a step, median 0.45 s"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace dslaunch::job_screen_test

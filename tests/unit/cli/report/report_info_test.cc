#include "cli/report/report_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace dslaunch::report_info_test {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// Returns the files of one start of a rank. Its windows are ten steps apart; `own_s` is the time of
// the rank's own work in each window.
RankFiles Rank(uint64_t attempt, uint32_t rank, const std::vector<double>& own_s) {
  RankFiles files;
  files.node = rank < 2 ? "node1" : "node2";
  files.attempt = attempt;
  files.rank = rank;
  files.metrics.emplace();
  int64_t step = 0;
  for (const double own : own_s) {
    MetricsPoint point;
    point.step = step += 10;
    point.compute_s = own;
    point.step_s = 0.5;
    point.loss = 1.0 / static_cast<double>(step);
    files.metrics->points.push_back(point);
  }
  return files;
}

TEST(ReportInfoTest, FindsStragglerAndItsDelay) {
  ReportData data;
  data.ranks = {Rank(1, 0, {9, 0.3, 0.3, 0.31}), Rank(1, 1, {9, 0.3, 0.3, 0.3}),
                Rank(1, 2, {9, 0.32, 0.32, 0.32}), Rank(1, 3, {9, 0.39, 0.39, 0.4})};
  const std::optional<JobPace> pace = PaceOf(data);
  ASSERT_TRUE(pace);
  EXPECT_TRUE(pace->own_work_known);
  EXPECT_DOUBLE_EQ(pace->median_s, 0.3) << "the first window does not count";
  ASSERT_EQ(pace->ranks.size(), 4u);
  EXPECT_EQ(pace->ranks[0].rank, 3u);
  EXPECT_NEAR(pace->ranks[0].slower, 0.3, 1e-9);
  EXPECT_TRUE(pace->ranks[0].straggler);
  EXPECT_FALSE(pace->ranks[1].straggler) << "7% is no straggler";
}

TEST(ReportInfoTest, FindsStragglerOfTwoRanks) {
  ReportData data;
  data.ranks = {Rank(1, 0, {0.3}), Rank(1, 1, {0.36})};
  const std::optional<JobPace> pace = PaceOf(data);
  EXPECT_EQ(pace->ranks[0].rank, 1u);
  EXPECT_TRUE(pace->ranks[0].straggler);
  EXPECT_FALSE(pace->ranks[1].straggler);
}

TEST(ReportInfoTest, UsesLastStartAndStepTimeWithoutOwnWork) {
  ReportData data;
  data.ranks = {Rank(1, 0, {0.3}), Rank(1, 1, {0.9}), Rank(2, 0, {kNotRecorded}),
                Rank(2, 1, {kNotRecorded}), Rank(3, 0, {})};
  const std::optional<JobPace> pace = PaceOf(data);
  EXPECT_EQ(pace->attempt, 2u);
  EXPECT_FALSE(pace->own_work_known);
  EXPECT_EQ(pace->median_s, 0.5);
  EXPECT_FALSE(PaceOf(ReportData()));
}

TEST(ReportInfoTest, ReturnsOnePiecePerStartOrderedByStep) {
  ReportData data;
  data.ranks = {Rank(1, 0, {1, 1, 1}), Rank(1, 1, {1}), Rank(2, 0, {1, 1})};
  std::swap(data.ranks[0].metrics->points[0], data.ranks[0].metrics->points[1]);
  data.ranks[0].metrics->points[2].loss = kNotRecorded;
  EXPECT_THAT(PiecesOf(data, &MetricsPoint::loss),
              ElementsAre(ElementsAre(Pair(10, 0.1), Pair(20, 0.05)),
                          ElementsAre(Pair(10, 0.1), Pair(20, 0.05))));
  data.ranks[2].metrics->points[0].step = 15;
  data.ranks[2].metrics->points[0].data_epoch = 1;
  data.ranks[2].metrics->points[1].data_epoch = 2;
  const std::vector<Plot::Mark> marks = MarksOf(data);
  ASSERT_EQ(marks.size(), 2u);
  EXPECT_EQ(marks[0].x, 15);
  EXPECT_EQ(marks[0].label, "restart 1");
  EXPECT_TRUE(marks[0].strong);
  EXPECT_EQ(marks[1].label, "epoch 2");
}

RankFiles Profiled(uint64_t attempt, uint32_t rank, double mm_s, double hidden_s) {
  RankFiles files;
  files.attempt = attempt;
  files.rank = rank;
  files.profile = RankProfile{.steps = 2,
                              .wall_s = 1,
                              .operators = {{"relu", 2, 0.1}, {"mm", 4, mm_s, 100}},
                              .communication_s = 0.4,
                              .hidden_s = hidden_s,
                              .kinds = {{"all_reduce", 4, 1000, 0.4}}};
  return files;
}

TEST(ReportInfoTest, AveragesOperatorsAndCommunicationPerStep) {
  ReportData data;
  data.ranks = {Profiled(1, 0, 99, 0), Profiled(2, 0, 0.2, 0.3), Profiled(2, 1, 0.4, 0.1)};
  const std::vector<ReportedOperator> rows = OperatorsOf(data);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].name, "mm");
  EXPECT_NEAR(rows[0].self_s, 0.15, 1e-12) << "of the last start";
  EXPECT_NEAR(rows[0].calls, 2, 1e-12);
  EXPECT_NEAR(rows[0].self_bytes, 50, 1e-12);
  EXPECT_NEAR(rows[0].share, 0.75, 1e-12);
  EXPECT_TRUE(std::isnan(rows[1].self_bytes));
  const std::optional<CommunicationInfo> info = CommunicationOf(data);
  ASSERT_TRUE(info);
  EXPECT_NEAR(info->total_s, 0.2, 1e-12);
  EXPECT_NEAR(info->HiddenShare(), 0.5, 1e-12);
  EXPECT_NEAR(info->step_s, 0.5, 1e-12);
  ASSERT_EQ(info->kinds.size(), 1u);
  EXPECT_NEAR(info->kinds[0].bytes, 500, 1e-9);
  EXPECT_NEAR(info->ranks[1].hidden_s, 0.05, 1e-12);
  EXPECT_FALSE(CommunicationOf(ReportData()));
}

TEST(ReportInfoTest, ReportsMaximumMemoryOfRanksWithPlan) {
  ReportData data;
  data.ranks = {Rank(1, 0, {}), Rank(1, 1, {})};
  data.ranks[0].run.emplace().memory_plan = {{"parameters", 10}, {"activations", 50}};
  data.ranks[0].metrics->memory = {{"parameters", 9}, {"activations", 0}, {"peak_rss", 100}};
  data.ranks[1].metrics->memory = {{"parameters", 11}, {"buckets", 0}};
  const MemoryInfo memory = MemoryOf(data);
  ASSERT_EQ(memory.rows.size(), 3u);
  EXPECT_EQ(memory.rows[0].predicted, 10);
  EXPECT_EQ(memory.rows[0].measured, 11);
  EXPECT_TRUE(std::isnan(memory.rows[1].measured)) << "activations were not looked for";
  EXPECT_TRUE(std::isnan(memory.rows[2].predicted));
  EXPECT_EQ(memory.rows[2].measured, 0);
  EXPECT_EQ(memory.peak_rss, 100);
}

TEST(ReportInfoTest, MedianIsLowerMiddleValue) {
  EXPECT_EQ(MedianOf(std::vector<double>{3, 1, kNotRecorded, 2}), 2);
  EXPECT_EQ(MedianOf(std::vector<double>{4, 1, 3, 2}), 2) << "the lower one";
  EXPECT_TRUE(std::isnan(MedianOf(std::vector<double>{})));
}

}  // namespace
}  // namespace dslaunch::report_info_test

#include "trainer/profile/operator_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace dslaunch::operator_table_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kS = 1'000'000'000;

// Returns the events of two steps of one thread. The second step recurses, and starts an operation
// that ends on another thread.
std::vector<RecordedEvent> Events() {
  return {{"ProfilerStep#2", 1, 0, 10 * kS},
          {"aten::linear", 1, 1 * kS, 7 * kS},
          {"aten::addmm", 1, 2 * kS, 6 * kS},
          {"ProfilerStep#3", 1, 10 * kS, 20 * kS},
          {"aten::linear", 1, 11 * kS, 15 * kS},
          {"aten::linear", 1, 12 * kS, 14 * kS},
          {"gloo:all_reduce", 1, 16 * kS, 25 * kS, /*async=*/true},
          {"aten::addmm", 2, 3 * kS, 5 * kS}};
}

OperatorRow Row(const std::vector<OperatorRow>& rows, const std::string& name) {
  return *std::ranges::find(rows, name, &OperatorRow::name);
}

std::vector<std::string> Names(const std::vector<OperatorRow>& rows) {
  std::vector<std::string> names;
  for (const OperatorRow& row : rows) names.push_back(row.name);
  return names;
}

TEST(OperatorTableTest, SelfTimeExcludesCalledOperators) {
  const std::vector<OperatorRow> rows = OperatorRows(Events(), {}, ProfileSort::kSelfTime);
  EXPECT_DOUBLE_EQ(Row(rows, "ProfilerStep*").self_s, 4 + 6);
  EXPECT_DOUBLE_EQ(Row(rows, "ProfilerStep*").total_s, 20);
  EXPECT_DOUBLE_EQ(Row(rows, "aten::linear").self_s, 2 + 2 + 2);
  EXPECT_DOUBLE_EQ(Row(rows, "aten::linear").total_s, 6 + 4) << "nested operators count once";
  EXPECT_EQ(Row(rows, "aten::linear").calls, 3);
  EXPECT_DOUBLE_EQ(Row(rows, "aten::addmm").self_s, 4 + 2) << "in two threads";
  EXPECT_DOUBLE_EQ(Row(rows, "gloo:all_reduce").self_s, 0);
  EXPECT_DOUBLE_EQ(Row(rows, "gloo:all_reduce").total_s, 9);
}

TEST(OperatorTableTest, AssignsMemoryToInnermostOperator) {
  const std::vector<OperatorRow> rows = OperatorRows(
      Events(),
      {{1, 3 * kS, 100}, {1, 4 * kS, -30}, {1, 6 * kS + 1, 7}, {2, 4 * kS, 5}, {1, 30 * kS, 9}},
      ProfileSort::kMemory);
  EXPECT_EQ(Row(rows, "aten::addmm").self_bytes, 75);
  EXPECT_EQ(Row(rows, "aten::linear").self_bytes, 7);
  EXPECT_EQ(Row(rows, "ProfilerStep*").self_bytes, 0)
      << "memory after the last step belongs to no step";
  EXPECT_EQ(rows[0].name, "aten::addmm");
}

TEST(OperatorTableTest, AssignsDeviceTimeToStartingOperator) {
  std::vector<RecordedEvent> events = Events();
  events[1].correlation = 7;  // aten::linear, which contains the aten::addmm of the next line
  events[2].correlation = 8;
  const std::vector<RecordedKernel> kernels = {{"gemm", 8, 3 * kS, 8 * kS},
                                               {"gemm", 8, 8 * kS, 9 * kS},
                                               {"fill", 7, 1 * kS, 3 * kS},
                                               {"of nobody", 0, 0, 4 * kS}};
  const std::vector<OperatorRow> rows =
      OperatorRows(std::move(events), {}, ProfileSort::kDeviceTime, kernels);
  EXPECT_DOUBLE_EQ(Row(rows, "aten::addmm").device_s, 6);
  EXPECT_DOUBLE_EQ(Row(rows, "aten::linear").device_s, 2)
      << "without the kernels that addmm has started";
  EXPECT_DOUBLE_EQ(Row(rows, "ProfilerStep*").device_s, 0);
  EXPECT_DOUBLE_EQ(Row(rows, "gemm").device_s, 6);
  EXPECT_EQ(Row(rows, "gemm").calls, 2);
  EXPECT_EQ(rows[0].device_s, 6);
  const std::string text = OperatorTable(rows, 2, 20, 2);
  EXPECT_THAT(text, HasSubstr(" device\n"));
  EXPECT_THAT(text, HasSubstr("the device's 12000.000 ms, in")) << "each kernel once";
  EXPECT_THAT(OperatorTable(OperatorRows(Events(), {}, ProfileSort::kSelfTime), 2, 20, 2),
              ::testing::Not(HasSubstr("device")));
}

TEST(OperatorTableTest, SortsByChosenColumn) {
  EXPECT_THAT(Names(OperatorRows(Events(), {}, ProfileSort::kSelfTime)),
              ElementsAre("ProfilerStep*", "aten::addmm", "aten::linear", "gloo:all_reduce"));
  EXPECT_THAT(Names(OperatorRows(Events(), {}, ProfileSort::kTotalTime)),
              ElementsAre("ProfilerStep*", "aten::linear", "gloo:all_reduce", "aten::addmm"));
  EXPECT_EQ(OperatorRows(Events(), {}, ProfileSort::kCalls)[0].name, "aten::linear");
}

TEST(OperatorTableTest, FormatsTable) {
  const std::vector<OperatorRow> rows = {{"aten::mm", 4, 0.3, 0.3, 3 << 20},
                                         {std::string(80, 'x'), 1, 0.1, 0.2, -512},
                                         {"aten::add", 2, 0.1, 0.1, 0}};
  EXPECT_EQ(
      OperatorTable(rows, 2, 0.51, 3),
      "operator                                                           self   self %          "
      "total           mean    calls    self memory\n"
      "aten::mm                                                     300.000 ms   60.00%     "
      "300.000 ms      75.000 ms        4        3.0 MiB\n" +
          std::string(53, 'x') +
          "...     100.000 ms   20.00%     200.000 ms     200.000 ms        1         -512 B\n"
          "... and 1 more\n"
          "self time of all 500.000 ms, in 510.000 ms of wall time of 3 steps");
  EXPECT_THAT(OperatorTable({}, 2, 0, 1), HasSubstr("0.000 ms of wall time of 1 step"));
}

}  // namespace
}  // namespace dslaunch::operator_table_test

#include "cli/report/report_compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/report/report_files.h"
#include "tests/support/report_document.h"

namespace dslaunch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Returns a job of 100 s whose ranks started after 2 s, and started again 10 s after a failure at
// 50 s.
ReportData Job(const std::string& id, double step_s, double loss) {
  ReportData data;
  data.job_id = id;
  data.command = "dslaunch train </script>";
  data.state = "ended (0)";
  data.ended = true;
  data.started_unix_ms = 1'000'000;
  data.ended_unix_ms = 1'100'000;
  data.nodes = {"node1", "node2"};
  data.events.starts = {{1002, 1, 4, data.nodes}, {1060, 2, 4, data.nodes}};
  data.events.restarts = {{1, "rank 1 failed", "restart", 1050}};
  RankFiles& files = data.ranks.emplace_back();
  files.metrics.emplace();
  for (int64_t step = 1; step <= 3; ++step) {
    MetricsPoint& point = files.metrics->points.emplace_back();
    point.step = step;
    point.step_s = step_s;
    point.loss = loss / static_cast<double>(step);
  }
  return data;
}

const ComparedRow& RowNamed(const std::vector<ComparedRow>& rows, const std::string& name) {
  static const ComparedRow none = {"none", {}, ""};
  for (const ComparedRow& row : rows) {
    if (row.name == name) return row;
  }
  return none;
}

TEST(CompareJobs, ReturnsValuesAndChange) {
  const std::vector<ComparedRow> rows = CompareJobs({Job("a", 0.2, 3), Job("b", 0.1, 6)});
  EXPECT_THAT(RowNamed(rows, "Step time, median").values, ElementsAre("200 ms", "100 ms"));
  EXPECT_EQ("-50 %", RowNamed(rows, "Step time, median").change);
  EXPECT_EQ("+100 %", RowNamed(rows, "Steps/s, median").change);
  EXPECT_THAT(RowNamed(rows, "Last loss").values, ElementsAre("1", "2"));
  EXPECT_THAT(RowNamed(rows, "Nodes").values, ElementsAre("2: node1, node2", "2: node1, node2"));
}

TEST(CompareJobs, DividesDurationIntoPhases) {
  const std::vector<ComparedRow> rows = CompareJobs({Job("a", 1, 1), ReportData()});
  EXPECT_EQ("1 min 40 s", RowNamed(rows, "Duration").values[0]);
  EXPECT_EQ("2 s", RowNamed(rows, "  until ranks start").values[0]);
  EXPECT_EQ("88 s", RowNamed(rows, "  ranks run").values[0]);
  EXPECT_EQ("10 s", RowNamed(rows, "  between attempts").values[0]);
  EXPECT_EQ("", RowNamed(rows, "Duration").values[1]);
}

TEST(CompareJobs, OmitsWhatNoJobRecorded) {
  const std::vector<ComparedRow> rows = CompareJobs({Job("a", 1, 1), Job("b", 1, 1)});
  EXPECT_EQ("none", RowNamed(rows, "MFU, median").name);
  EXPECT_EQ("none", RowNamed(rows, "Failure").name);
}

TEST(ComparisonText, AlignsJobs) {
  const std::string text = ComparisonText({Job("a", 0.2, 3), Job("b", 0.1, 6)});
  EXPECT_THAT(text, HasSubstr("Step time, median"));
  EXPECT_THAT(text, HasSubstr("change\n"));
}

TEST(ComparisonPage, HasOneDocumentThatNoTextCanLeave) {
  const nlohmann::json document = DocumentIn(ComparisonPage({Job("a", 0.2, 3), Job("b", 0.1, 6)}));
  EXPECT_EQ("dslaunch train </script>", document["about"][0][1]["code"]);
  const nlohmann::json lines = PartOf(document, "loss", "plot")["lines"];
  ASSERT_EQ(2u, lines.size());
  EXPECT_EQ("b", lines[1]["name"]);
  EXPECT_EQ(6.0, lines[1]["pieces"][0][0][1]);
  EXPECT_EQ("seconds", PartOf(document, "step_time", "plot")["number"]);
  EXPECT_EQ(nlohmann::json({"", "a", "b", " Change"}),
            PartOf(document, "rows", "table")["columns"]);
}

TEST(ReadPreflight, MarksSlowFiguresOfNodes) {
  const std::optional<ReportedPreflight> preflight = ReadPreflight(R"({"bench_ms": 1500, "nodes": [
      {"node": "n1", "figures": [{"figure": "send", "value": 9, "text": "72 bit/s"}]},
      {"node": "n2", "figures": [{"figure": "GEMM", "part": "GPU 0", "value": 5, "text": "5"},
                                 {"figure": "GEMM", "part": "GPU 1", "value": 2, "text": "2"}]}],
    "findings": [{"node": "n1", "check": "cores", "level": "ok", "seen": "8 cores"},
                 {"node": "n2", "check": "GEMM", "level": "warn", "seen": "GPU 1: 2"},
                 {"node": "n9", "check": "GEMM", "level": "warn", "seen": "unknown"}]})");
  ASSERT_TRUE(preflight);
  EXPECT_EQ(1.5, preflight->took_s);
  ASSERT_EQ(2u, preflight->nodes.size());
  EXPECT_FALSE(preflight->nodes[0].values.at(0).slow);
  EXPECT_EQ("2", preflight->nodes[1].values.at(0).text);
  EXPECT_TRUE(preflight->nodes[1].values.at(0).slow);
  EXPECT_THAT(preflight->nodes[1].findings, ElementsAre("GEMM: GPU 1: 2"));
  EXPECT_FALSE(ReadPreflight("[]"));
}

}  // namespace
}  // namespace dslaunch

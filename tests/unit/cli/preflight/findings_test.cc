#include "cli/preflight/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Bench Healthy(size_t nodes) {
  Bench bench;
  for (size_t i = 0; i < nodes; ++i) {
    pb::NodeMeasurement measured;
    measured.set_core_flops(5'000'000'000);
    measured.set_cpu_share_permille(1000);
    measured.set_memory_bytes_per_s(10'000'000'000);
    pb::FolderSpeed& folder = *measured.add_folders();
    folder.set_path("/logs");
    folder.set_bytes_per_s(200'000'000);
    KeepBest(bench.figures, FiguresOf(measured, i));
    bench.nodes.push_back({"node" + std::to_string(i + 1), measured, ""});
  }
  for (const PairRound& round : PlanRounds(nodes)) {
    for (const NodePair& pair : round) {
      pb::LinkMeasurement link;
      link.set_endpoint("10.0.0.1:1");
      link.set_round_trip_ns(100'000);
      link.set_sent_bytes_per_s(1'000'000'000);
      link.set_received_bytes_per_s(1'000'000'000);
      KeepBest(bench.figures, FiguresOf(link, pair));
      bench.links.push_back({pair, ""});
    }
  }
  bench.first = bench.figures;
  return bench;
}

// Returns each finding as "node: check: seen", with FAIL after the check if the finding fails.
std::vector<std::string> Judged(const Bench& bench) {
  std::vector<std::string> lines;
  for (const BenchFinding& finding : JudgeBench(bench)) {
    EXPECT_FALSE(finding.hint.empty());
    lines.push_back(std::to_string(finding.node) + ": " + finding.check +
                    (finding.fails ? " FAIL: " : ": ") + finding.seen);
  }
  return lines;
}

TEST(JudgeBench, FindsNothingOnHealthyNodes) { EXPECT_THAT(Judged(Healthy(4)), IsEmpty()); }

TEST(JudgeBench, NamesSlowNodeWithFigureAndMedian) {
  Bench bench = Healthy(4);
  for (Figure& figure : bench.figures) {
    if (figure.node != 2) continue;
    if (figure.kind == FigureKind::kCpuShare) figure.value = 0.1;
    if (figure.kind == FigureKind::kLogFolder) figure.value = 4e6;
  }
  EXPECT_THAT(Judged(bench),
              ElementsAre("2: CPU share: 10 %, the median is 100 %",
                          "2: log folder: /logs: 4.00 MB/s, the median is 200 MB/s"));
}

TEST(JudgeBench, ReportsFailedHealthCommand) {
  Bench bench = Healthy(2);
  bench.nodes[1].measured->mutable_health()->set_failure("it ended with exit code 3: bad disk");
  EXPECT_THAT(Judged(bench),
              ElementsAre("1: health command FAIL: it ended with exit code 3: bad disk"));
  bench.nodes[1].measured->mutable_health()->set_passed(true);
  EXPECT_THAT(Judged(bench), IsEmpty());
}

TEST(JudgeBench, ReportsGpusThatCannotBeUsed) {
  Bench bench = Healthy(1);
  bench.gpus_needed = 1;
  pb::GpuHealth& gpu = *bench.nodes[0].measured->add_gpus();
  gpu.set_memory_bytes(80'000'000'000);
  gpu.set_memory_used_bytes(40'000'000'000);
  gpu.set_holder("python (pid 12, 40.0 GB)");
  gpu.set_uncorrected_errors(2);
  gpu.set_pages_pending(true);
  gpu.set_slowdown("thermal");
  EXPECT_THAT(
      Judged(bench),
      ElementsAre("0: gpu memory FAIL: GPU 0 has 40.0 GB of 80.0 GB in use, by python (pid 12, "
                  "40.0 GB)",
                  "0: gpu errors FAIL: GPU 0 has had 2 uncorrected memory errors since its driver "
                  "was loaded",
                  "0: gpu errors FAIL: GPU 0 has memory pages that wait to be retired",
                  "0: gpu clock FAIL: GPU 0 is slowed down by its hardware (thermal)"));
  bench.nodes[0].measured->mutable_gpus(0)->set_index(1);  // a GPU that the job does not use
  EXPECT_THAT(Judged(bench), IsEmpty());
}

TEST(JudgeBench, BlamesUnreachableNodeNotItsPartners) {
  Bench bench = Healthy(4);
  for (MeasuredLink& link : bench.links) {
    if (link.pair.serving == 1 || link.pair.measuring == 1) link.trouble = "no answer";
  }
  EXPECT_THAT(Judged(bench),
              ElementsAre("1: network FAIL: no other node can exchange data with it: no answer"));
}

TEST(JudgeBench, ReportsBrokenLinkOfTwoNodesAtBoth) {
  Bench bench = Healthy(2);
  bench.links[0].trouble = "no answer";
  EXPECT_THAT(Judged(bench), ElementsAre(HasSubstr("0: network"), HasSubstr("1: network")));
}

TEST(FiguresOf, CountsSilentDirectionAsSlowest) {
  pb::LinkMeasurement link;
  link.set_endpoint("10.0.0.1:1");
  link.set_sent_bytes_per_s(5);
  const std::vector<Figure> figures = FiguresOf(link, {.serving = 0, .measuring = 1});
  ASSERT_EQ(4u, figures.size());
  EXPECT_EQ(1, figures[1].value);  // throughput if node 1 receives
  EXPECT_EQ(5, figures[3].value);  // throughput if node 0 receives
  link.set_trouble("no answer");
  EXPECT_THAT(FiguresOf(link, {.serving = 0, .measuring = 1}), IsEmpty());
}

TEST(BenchTable, HasRowForEachNodeAndMedians) {
  Bench bench = Healthy(2);
  bench.nodes.push_back({"node3", std::nullopt, "not reached"});
  const std::string values =
      "5.00 GFLOP/s  100 %      10.0 GB/s  200 MB/s    8.00 Gbit/s  8.00 Gbit/s  0.10 ms\n";
  EXPECT_EQ(
      "  node    core          CPU share  memory     log folder  send         receive      round "
      "trip\n"
      "  node1   " +
          values + "  node2   " + values +
          "  node3   -             -          -          -           -            -            -\n"
          "  median  " +
          values,
      BenchTable(bench, "  "));
}

}  // namespace
}  // namespace dslaunch

#include "cli/preflight/judgement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "cli/preflight/pair_rounds.h"
#include "tests/support/random_seed.h"

namespace dslaunch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<Figure> Figures(FigureKind kind, const std::vector<double>& values) {
  std::vector<Figure> figures;
  for (size_t i = 0; i < values.size(); ++i) figures.push_back({kind, i, "", values[i]});
  return figures;
}

std::vector<size_t> SlowNodes(FigureKind kind, const std::vector<double>& values) {
  std::vector<size_t> nodes;
  for (const SlowFigure& slow : FindSlow(Figures(kind, values), Figures(kind, values)))
    nodes.push_back(slow.figure.node);
  return nodes;
}

TEST(FindSlow, NamesNodesBelowFourFifthsOfMedian) {
  EXPECT_THAT(SlowNodes(FigureKind::kGemm, {100, 79, 100, 101, 81}), ElementsAre(1));
  EXPECT_THAT(SlowNodes(FigureKind::kGemm, {100, 100, 100, 1000}), IsEmpty());
  EXPECT_THAT(SlowNodes(FigureKind::kGemm, {100, 50}), ElementsAre(1));
  const std::vector<SlowFigure> slow = FindSlow(Figures(FigureKind::kMemory, {90, 10, 110, 100}),
                                                Figures(FigureKind::kMemory, {90, 10, 110, 100}));
  ASSERT_EQ(1u, slow.size());
  EXPECT_EQ(95, slow[0].median);
}

TEST(FindSlow, NamesLongRoundTrips) {
  EXPECT_THAT(SlowNodes(FigureKind::kRoundTrip, {0.0001, 0.0001, 0.01, 0.0001}), ElementsAre(2));
  // Switches can cause 0.15 ms more than the median, so that is accepted.
  EXPECT_THAT(SlowNodes(FigureKind::kRoundTrip, {0.0001, 0.0001, 0.00025}), IsEmpty());
  EXPECT_THAT(SlowNodes(FigureKind::kRoundTrip, {0.01, 0.01, 0.0124}), IsEmpty());
}

TEST(FindSlow, ComparesAllDevicesOfAllNodes) {
  std::vector<Figure> figures;
  for (size_t node = 0; node < 2; ++node) {
    for (const char* gpu : {"GPU 0", "GPU 1"})
      figures.push_back({FigureKind::kGemm, node, gpu, node == 1 && gpu[4] == '1' ? 300.0 : 500.0});
  }
  const std::vector<SlowFigure> slow = FindSlow(figures, figures);
  ASSERT_EQ(1u, slow.size());
  EXPECT_EQ("GPU 1", slow[0].figure.part);
  EXPECT_EQ(1u, slow[0].figure.node);
}

TEST(FindSlow, SkipsKindsOfOneNode) {
  const std::vector<Figure> figures = {{FigureKind::kGemm, 0, "GPU 0", 1},
                                       {FigureKind::kGemm, 0, "GPU 1", 9}};
  EXPECT_THAT(FindSlow(figures, figures), IsEmpty());
}

TEST(FindSlow, AllowsForStarvation) {
  std::vector<Figure> figures = Figures(FigureKind::kSending, {100, 100, 60, 100});
  EXPECT_EQ(1u, FindSlow(figures, figures).size());
  figures[2].starved = 0.3;  // the figure would be 86 without starvation
  EXPECT_THAT(FindSlow(figures, figures), IsEmpty());
  figures[2].value = 20;  // 29 if starvation had no effect
  EXPECT_EQ(1u, FindSlow(figures, figures).size());
  figures[2].starved = 0.9;
  EXPECT_THAT(FindSlow(figures, figures), IsEmpty());
}

TEST(FindSlow, ComparesWithMediansOfFirstLook) {
  const std::vector<Figure> first = Figures(FigureKind::kMemory, {50, 50, 30, 50});
  EXPECT_THAT(FindSlow(Figures(FigureKind::kMemory, {100, 100, 45, 100}), first), IsEmpty());
}

TEST(FindSlow, IgnoresSmallDifferencesOfCpuShare) {
  EXPECT_THAT(SlowNodes(FigureKind::kCpuShare, {0.12, 0.13, 0.05, 0.13}), IsEmpty());
  EXPECT_THAT(SlowNodes(FigureKind::kCpuShare, {1, 1, 0.7, 1}), ElementsAre(2));
}

TEST(KeepBest, KeepsBetterOfTwoValues) {
  std::vector<Figure> figures = {{FigureKind::kMemory, 0, "", 5},
                                 {FigureKind::kRoundTrip, 0, "", 5}};
  KeepBest(figures, {{FigureKind::kMemory, 0, "", 7},
                     {FigureKind::kMemory, 0, "", 6},
                     {FigureKind::kRoundTrip, 0, "", 4},
                     {FigureKind::kRoundTrip, 1, "", 9}});
  ASSERT_EQ(3u, figures.size());
  EXPECT_EQ(7, figures[0].value);
  EXPECT_EQ(4, figures[1].value);
  EXPECT_EQ(9, figures[2].value);
}

TEST(FigureText, HasThreeDigitsAndUnit) {
  EXPECT_EQ("9.41 Gbit/s", FigureText(FigureKind::kSending, 9.41e9 / 8));
  EXPECT_EQ("312 TFLOP/s", FigureText(FigureKind::kGemm, 312e12));
  EXPECT_EQ("1.00 GB/s", FigureText(FigureKind::kMemory, 999.9e6));
  EXPECT_EQ("25 %", FigureText(FigureKind::kCpuShare, 0.25));
  EXPECT_EQ("0.11 ms", FigureText(FigureKind::kRoundTrip, 0.000114));
}

// A simulated network. A link has the speed of its slower end, less up to 15 % by chance.
class NetworkModel {
 public:
  NetworkModel(size_t nodes, uint64_t seed) : random_(seed), speeds_(nodes, 1e9) {}
  void Slow(size_t node) { speeds_[node] = 4e8; }

  // Measures as NodeBench does: first in rounds of all nodes, and then each suspect with good
  // partners. Returns the slow nodes.
  std::vector<size_t> SlowNodes() {
    std::vector<Figure> figures;
    for (const PairRound& round : PlanRounds(speeds_.size())) Measure(round, figures);
    const std::vector<size_t> suspects = NodesOf(FindSlow(figures, figures), true);
    std::vector<size_t> partners;
    for (size_t i = 0; i < speeds_.size(); ++i) {
      if (std::ranges::count(suspects, i) == 0) partners.push_back(i);
    }
    for (const PairRound& round : PlanConfirmation(suspects, partners)) Measure(round, figures);
    return NodesOf(FindSlow(figures, figures), true);
  }

 private:
  void Measure(const PairRound& round, std::vector<Figure>& figures) {
    std::uniform_real_distribution<double> part(0.85, 1.0);
    for (const NodePair& pair : round) {
      const double speed = std::min(speeds_[pair.serving], speeds_[pair.measuring]) * part(random_);
      KeepBest(figures, {{FigureKind::kSending, pair.serving, "", speed},
                         {FigureKind::kSending, pair.measuring, "", speed}});
    }
  }

  std::mt19937_64 random_;
  std::vector<double> speeds_;
};

TEST(Isolation, NamesSlowNodesAndNotTheirPartners) {
  const uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  for (int turn = 0; turn < 300; ++turn) {
    const size_t nodes = 3 + random() % 62;
    const size_t bad = 1 + random() % std::max<size_t>(1, nodes / 6);
    NetworkModel network(nodes, random());
    std::set<size_t> slow;
    while (slow.size() < bad) slow.insert(random() % nodes);
    for (const size_t node : slow) network.Slow(node);
    EXPECT_THAT(network.SlowNodes(), testing::ElementsAreArray(slow))
        << "nodes " << nodes << ", seed " << seed << ", turn " << turn;
  }
}

TEST(Isolation, NamesNoNodeOfHealthyNetworks) {
  const uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  for (int turn = 0; turn < 100; ++turn) {
    NetworkModel network(2 + random() % 63, random());
    EXPECT_THAT(network.SlowNodes(), IsEmpty()) << "seed " << seed << ", turn " << turn;
  }
}

// Simulates 100 clusters of healthy nodes, whose figures differ by up to 15 % by chance.
TEST(FindSlow, NamesNoNodeOfHealthyClusters) {
  const uint64_t seed = TestSeed();
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> part(0.85, 1.0);
  for (int turn = 0; turn < 100; ++turn) {
    std::vector<Figure> figures;
    const size_t nodes = 1 + random() % 64;
    for (size_t kind = 0; kind < kFigureKinds; ++kind) {
      for (size_t node = 0; node < nodes; ++node)
        figures.push_back({static_cast<FigureKind>(kind), node, "", 1e9 * part(random)});
    }
    EXPECT_THAT(FindSlow(figures, figures), IsEmpty()) << "seed " << seed << ", turn " << turn;
  }
}

}  // namespace
}  // namespace dslaunch

#include "trainer/pipeline/partition.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/unit/trainer/expect_refused.h"

namespace dslaunch::partition_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<LayerInfo> Layers(const std::vector<double>& parameters) {
  std::vector<LayerInfo> layers;
  for (double size : parameters) {
    layers.push_back(
        {.name = "layer " + std::to_string(layers.size()), .type = "", .parameters = size});
  }
  return layers;
}

std::vector<LayerInfo> Typed(const std::vector<std::string>& types) {
  std::vector<LayerInfo> layers;
  for (const std::string& type : types) layers.push_back({.name = "", .type = type});
  return layers;
}

// The cases are taken from DeepSpeed's tests of its partitioning.
TEST(PartitionTest, MinimizesLargestPartAsDeepSpeed) {
  EXPECT_THAT(CutLayers(Layers({0, 1, 2, 3, 3, 3}), 4, "parameters"), ElementsAre(0, 3, 4, 5, 6));
  EXPECT_THAT(CutLayers(Layers({0, 1.1, 1.9, 3, 3, 3}), 4, "best"), ElementsAre(0, 3, 4, 5, 6));
  EXPECT_THAT(CutLayers(Layers({0, 1.1, 30, 3}), 3, "parameters"), ElementsAre(0, 2, 3, 4));
  EXPECT_THAT(CutLayers(Layers({0, 1.1, 1.9, 3, 30}), 2, "parameters"), ElementsAre(0, 4, 5));
  EXPECT_THAT(CutLayers(Layers(std::vector<double>(8, 1)), 4, "parameters"),
              ElementsAre(0, 2, 4, 6, 8));
  EXPECT_THAT(CutLayers(Layers(std::vector<double>(10, 1)), 1, "parameters"), ElementsAre(0, 10));
  // BERT large consists of embedding, 24 blocks, a function, and head. Embedding and head each
  // weigh as much as 4.2 blocks.
  std::vector<double> bert(24, 12596224);
  bert.insert(bert.begin(), 52559872);
  bert.insert(bert.end(), {0, 52559872});
  EXPECT_THAT(CutLayers(Layers(bert), 8, "parameters"), ElementsAre(0, 1, 5, 9, 13, 17, 21, 26, 27))
      << "the function stays with the blocks before it";
}

TEST(PartitionTest, UniformPartsDifferByAtMostOneLayer) {
  EXPECT_THAT(CutLayers(Layers({100, 1, 1, 1, 1}), 2, "uniform"), ElementsAre(0, 3, 5));
  EXPECT_THAT(CutLayers(Layers({9, 0, 0, 0, 0, 0, 0, 0}), 3, "uniform"), ElementsAre(0, 3, 6, 8));
}

TEST(PartitionTest, BalancesMeasuredTimes) {
  std::vector<LayerInfo> layers = Layers({1, 1, 1, 1});
  layers[3].cost = 0.5;
  layers[0].cost = layers[1].cost = layers[2].cost = 0.1;
  EXPECT_THAT(CutLayers(layers, 2, "profile"), ElementsAre(0, 3, 4));
}

TEST(PartitionTest, GivesEachPartSameNumberOfMatchingLayers) {
  const auto layers = Typed({"Embedding", "GPT2Block", "GPT2Block", "Dropout", "GPT2Block",
                             "GPT2Block", "LayerNorm", "Linear"});
  EXPECT_THAT(CutLayers(layers, 2, "type:block"), ElementsAre(0, 4, 8))
      << "in any case; what is between two blocks stays with the first";
  EXPECT_THAT(CutLayers(layers, 2, "type:^(Embedding|Linear)$"), ElementsAre(0, 7, 8));
  EXPECT_THAT(CutLayers(layers, 4, "type:BLOCK"), ElementsAre(0, 2, 4, 5, 8));
}

TEST(PartitionTest, BalancesPartsBelowTheLargest) {
  EXPECT_THAT(CutLayers(Layers({10, 2, 2, 2, 2, 2, 2}), 3, "parameters"), ElementsAre(0, 1, 4, 7))
      << "a part of 10 and one of 2 would not be larger than the first";
}

// The best of all possible cuts, for comparison.
struct Best {
  double largest = 1e300;
  double squares = 1e300;
};
void TryAll(const std::vector<double>& weights, size_t parts, size_t from, double largest,
            double squares, Best& best) {
  if (parts == 0) {
    if (from < weights.size()) return;
    if (largest < best.largest || (largest == best.largest && squares < best.squares)) {
      best = {largest, squares};
    }
    return;
  }
  double weight = 0;
  for (size_t end = from + 1; end <= weights.size(); ++end) {
    weight += weights[end - 1];
    TryAll(weights, parts - 1, end, std::max(largest, weight), squares + weight * weight, best);
  }
}

TEST(PartitionTest, MatchesBestDivisionFoundByBruteForce) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    const size_t layers = std::uniform_int_distribution<size_t>(1, 9)(random);
    const size_t parts = std::uniform_int_distribution<size_t>(1, layers)(random);
    std::vector<double> weights;
    for (size_t i = 0; i < layers; ++i) {
      weights.push_back(std::uniform_int_distribution<>(0, 6)(random));
    }
    const std::vector<size_t> bounds = CutLayers(Layers(weights), parts, "parameters");
    ASSERT_EQ(bounds.size(), parts + 1);
    ASSERT_EQ(bounds.front(), 0u);
    ASSERT_EQ(bounds.back(), layers);
    Best found{0, 0};
    for (size_t p = 0; p < parts; ++p) {
      ASSERT_LT(bounds[p], bounds[p + 1]) << "a part is empty";
      double weight = 0;
      for (size_t i = bounds[p]; i < bounds[p + 1]; ++i) weight += weights[i];
      found.largest = std::max(found.largest, weight);
      found.squares += weight * weight;
    }
    Best best;
    TryAll(weights, parts, 0, 0, 0, best);
    EXPECT_EQ(found.largest, best.largest);
    EXPECT_EQ(found.squares, best.squares);
  }
}

TEST(PartitionTest, DividesThousandLayersEvenly) {
  const auto bounds = CutLayers(Layers(std::vector<double>(1000, 7)), 250, "parameters");
  for (size_t p = 0; p < 250; ++p) ASSERT_EQ(bounds[p + 1] - bounds[p], 4u);
}

TEST(PartitionTest, RejectsTooFewLayers) {
  ExpectRefused(
      [] {
        CutLayers(Layers({1, 1, 1}), 4, "uniform");
      },
      ExitCode::kBadInput,
      AllOf(HasSubstr("has 3 layers, too few for 4 pipeline stages"), HasSubstr("at most 3")));
  ExpectRefused([] { CutLayers(Layers({5}), 2, "parameters"); }, ExitCode::kBadInput,
                HasSubstr("has 1 layer, too few for 2 pipeline stages"));
  ExpectRefused(
      [] {
        CutLayers(Typed({"Embedding", "Block", "Linear"}), 2, "type:block");
      },
      ExitCode::kBadInput,
      AllOf(HasSubstr("1 layer whose type pipeline.partition \"type:block\" matches"),
            HasSubstr("Block, Embedding, Linear"), HasSubstr("too few for 2 pipeline stages")));
}

// An embedding has many parameters but computes almost nothing, so the number of operations
// balances better.
TEST(PartitionTest, BestBalancesOperationsIfKnown) {
  std::vector<LayerInfo> layers = Layers({1000, 10, 10, 10, 10});
  EXPECT_EQ(CutLayers(layers, 2, "best"), CutLayers(layers, 2, "parameters"))
      << "nothing else known";
  for (size_t i = 1; i < layers.size(); ++i) layers[i].cost = 7;
  EXPECT_THAT(CutLayers(layers, 2, "best"), testing::ElementsAre(0, 3, 5));
  EXPECT_THAT(CutLayers(layers, 2, "parameters"), testing::ElementsAre(0, 1, 5));
}

TEST(PartitionTest, RejectsUnknownMethods) {
  ExpectRefused(
      [] {
        CutLayers(Layers({1, 1}), 2, "evenly");
      },
      ExitCode::kBadInput, AllOf(HasSubstr("\"evenly\""), HasSubstr("type:REGEX")));
  ExpectRefused(
      [] {
        CutLayers(Layers({1, 1}), 2, "type:(");
      },
      ExitCode::kBadInput,
      AllOf(HasSubstr("\"type:(\""), HasSubstr("is not a valid regular expression")));
}

}  // namespace
}  // namespace dslaunch::partition_test

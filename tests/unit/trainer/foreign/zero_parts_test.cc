#include "trainer/foreign/zero_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "trainer/base/train_error.h"

namespace dslaunch::zero_parts_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Names of the elements in a rank's flat tensor: "b7" is element 7 of parameter b, "" is padding.
using Labels = std::vector<std::string>;

std::vector<NamedShape> RandomParameters(std::mt19937* random) {
  std::vector<NamedShape> parameters;
  const auto count = (*random)() % 6;
  for (unsigned i = 0; i < count; ++i) {
    parameters.push_back(
        {std::string(1, static_cast<char>('a' + i)), {static_cast<int64_t>((*random)() % 4), 3}});
    if ((*random)() % 3 == 0) parameters.back().shape = {};
  }
  return parameters;
}

Labels LabelsOf(const NamedShape& parameter) {
  int64_t elements = 1;
  for (const int64_t size : parameter.shape) elements *= size;
  Labels labels;
  for (int64_t i = 0; i < elements; ++i) labels.push_back(parameter.name + std::to_string(i));
  return labels;
}

// Fills a flat tensor of the rank with the next elements of its parameters. `next`: the next
// element of each parameter; advanced by the call.
Labels Filled(const RankCut& cut, std::map<std::string, int64_t>* next) {
  Labels flat(static_cast<size_t>(cut.whole));
  for (const Fragment& fragment : cut.fragments) {
    for (int64_t i = 0; i < fragment.elements; ++i) {
      flat.at(static_cast<size_t>(fragment.start + i)) =
          fragment.name + std::to_string((*next)[fragment.name]++);
    }
  }
  return flat;
}

TEST(CutGroup, EqualsCutOfConcatenatedParameters) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const auto parameters = RandomParameters(&random);
    const int64_t world_size = 1 + random() % 5;
    std::vector<int64_t> paddings;
    Labels group;
    for (const NamedShape& parameter : parameters) {
      const Labels labels = LabelsOf(parameter);
      group.insert(group.end(), labels.begin(), labels.end());
      if (round % 2 == 0) continue;
      paddings.push_back(random() % 3);
      group.resize(group.size() + static_cast<size_t>(paddings.back()));
    }
    const size_t used = group.size();
    while (group.size() % static_cast<size_t>(2 * world_size) != 0) group.emplace_back();
    const size_t part = group.size() / static_cast<size_t>(world_size);
    std::map<std::string, int64_t> next;
    for (int64_t rank = 0; rank < world_size; ++rank) {
      const RankCut cut = CutGroup(parameters, paddings, rank, world_size);
      const size_t begin = part * static_cast<size_t>(rank);
      const auto first = group.begin() + static_cast<int64_t>(begin);
      EXPECT_EQ(Filled(cut, &next), Labels(first, first + static_cast<int64_t>(part)));
      EXPECT_EQ(cut.used, static_cast<int64_t>(std::min(std::max(used, begin) - begin, part)));
    }
  }
}

TEST(CutGroup, RefusesGroupOfTooManyElements) {
  const int64_t half = int64_t{1} << 59;
  EXPECT_THROW(CutGroup({{"a", {half}}, {"b", {half}}}, {}, 0, 2), TrainError);
  EXPECT_THROW(CutGroup({{"a", {half}}}, {half}, 0, 2), TrainError);
  EXPECT_EQ(CutGroup({{"a", {half}}}, {}, 0, 1).whole, half);
}

TEST(CutEachParameter, EqualsCuttingEachPaddedParameterAlone) {
  std::mt19937 random(8);
  for (int round = 0; round < 300; ++round) {
    const auto parameters = RandomParameters(&random);
    const int64_t world_size = 1 + random() % 5;
    std::map<std::string, int64_t> next;
    for (int64_t rank = 0; rank < world_size; ++rank) {
      Labels expected;
      for (const NamedShape& parameter : parameters) {
        Labels labels = LabelsOf(parameter);
        while (labels.size() % static_cast<size_t>(world_size) != 0) labels.emplace_back();
        const auto part = static_cast<int64_t>(labels.size()) / world_size;
        const auto first = labels.begin() + part * rank;
        expected.insert(expected.end(), first, first + part);
      }
      EXPECT_EQ(Filled(CutEachParameter(parameters, rank, world_size), &next), expected);
    }
  }
}

TEST(RanksWithout, ReturnsGaps) {
  EXPECT_THAT(RanksWithout({{0, "a"}, {2, "b"}, {9, "c"}}, 4), ElementsAre(1, 3));
  EXPECT_THAT(RanksWithout({}, 0), IsEmpty());
}

}  // namespace
}  // namespace dslaunch::zero_parts_test

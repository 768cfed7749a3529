#include "trainer/foreign/deepspeed_whole.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace dslaunch::deepspeed_whole_test {
namespace {

using testing::ElementsAre;
using testing::Optional;

using Assignment = std::vector<std::vector<size_t>>;

// Returns all valid assignments, found by trying every group for every candidate.
std::vector<Assignment> AllAssignments(const std::vector<Shapes>& groups,
                                       const Shapes& candidates) {
  std::vector<Assignment> all;
  Assignment chosen(groups.size());
  const std::function<void(size_t)> assign = [&](size_t candidate) {
    if (candidate == candidates.size()) {
      for (size_t i = 0; i < groups.size(); ++i) {
        if (chosen[i].size() < groups[i].size()) return;
      }
      all.push_back(chosen);
      return;
    }
    assign(candidate + 1);
    for (size_t i = 0; i < groups.size(); ++i) {
      const size_t next = chosen[i].size();
      if (next == groups[i].size() || groups[i][next] != candidates[candidate]) continue;
      chosen[i].push_back(candidate);
      assign(candidate + 1);
      chosen[i].pop_back();
    }
  };
  assign(0);
  return all;
}

TEST(AssignByShape, FindsTheOnlyAssignment) {
  EXPECT_THAT(AssignByShape({{{2, 3}, {3, 2}}, {{3}, {2}}}, {{2, 3}, {3}, {9, 9}, {3, 2}, {2}}),
              Optional(ElementsAre(ElementsAre(0, 3), ElementsAre(1, 4))));
}

TEST(AssignByShape, RejectsAmbiguousShapes) {
  EXPECT_EQ(AssignByShape({{{2}}}, {{2}, {2}}), std::nullopt);
  EXPECT_EQ(AssignByShape({{{2}}, {{2}}}, {{2}, {2}}), std::nullopt);
  EXPECT_EQ(AssignByShape({{{2}}}, {{3}}), std::nullopt);
  EXPECT_EQ(AssignByShape({{{2}}}, {}), std::nullopt);
}

TEST(AssignByShape, AgreesWithTryingAllAssignments) {
  std::mt19937 random(3);
  int found = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<Shapes> groups(1 + random() % 3);
    Shapes candidates;
    for (unsigned i = random() % 7; i > 0; --i)
      candidates.push_back({static_cast<int64_t>(random() % 4)});
    for (const auto& shape : candidates) {
      if (random() % 4 != 0) groups[random() % groups.size()].push_back(shape);
    }
    const auto all = AllAssignments(groups, candidates);
    const auto assigned = AssignByShape(groups, candidates);
    EXPECT_EQ(assigned.has_value(), all.size() == 1);
    if (!assigned) continue;
    EXPECT_EQ(*assigned, all[0]);
    ++found;
  }
  EXPECT_GT(found, 100);
}

}  // namespace
}  // namespace dslaunch::deepspeed_whole_test

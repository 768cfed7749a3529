#include "cli/preflight/replacements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

LaunchPlan Plan(size_t regular, size_t spares, int slots = 2) {
  LaunchPlan plan;
  for (size_t i = 0; i < regular + spares; ++i) {
    Host& node = plan.nodes.emplace_back();
    node.name = node.host = "n" + std::to_string(i);
    node.slots = slots;
    node.spare = i >= regular;
  }
  plan.max_nodes = plan.min_nodes = static_cast<int>(regular);
  plan.ranks = NumberRanksOf(plan.nodes);
  return plan;
}

std::vector<std::string> Names(const LaunchPlan& plan) {
  std::vector<std::string> names;
  for (const Host& node : plan.nodes) names.push_back(node.name + (node.spare ? " spare" : ""));
  return names;
}

TEST(ReplaceUnfit, GivesRanksOfSlowNodeToSpare) {
  const Replacements result = ReplaceUnfit(Plan(3, 2), {{"n1", false}});
  EXPECT_THAT(Names(result.plan), ElementsAre("n0", "n3", "n2", "n4 spare"));
  EXPECT_THAT(result.notices, ElementsAre("n1 is set aside; spare n3 gets its ranks"));
  EXPECT_THAT(result.missing, IsEmpty());
  EXPECT_EQ(6, result.plan.world_size());
  EXPECT_EQ(3, result.plan.min_nodes);
}

TEST(ReplaceUnfit, TrimsSlotsOfSpare) {
  LaunchPlan plan = Plan(2, 1);
  plan.nodes[2].slots = 8;
  const Replacements result = ReplaceUnfit(plan, {{"n0", true}});
  EXPECT_THAT(Names(result.plan), ElementsAre("n2", "n1"));
  EXPECT_EQ(4, result.plan.world_size());
}

TEST(ReplaceUnfit, ReplacesFailingNodesBeforeSlowOnes) {
  const Replacements result = ReplaceUnfit(Plan(3, 1), {{"n0", false}, {"n2", true}});
  EXPECT_THAT(Names(result.plan), ElementsAre("n0", "n1", "n3"));
  EXPECT_THAT(result.notices, ElementsAre("n2 is set aside; spare n3 gets its ranks",
                                          "n0 keeps its ranks, because there is no spare for it"));
}

TEST(ReplaceUnfit, ReportsFailingNodeWithoutReplacement) {
  LaunchPlan plan = Plan(2, 1);
  plan.nodes[2].slots = 1;  // too few slots for the ranks of another node
  const Replacements result = ReplaceUnfit(plan, {{"n1", true}});
  EXPECT_THAT(result.missing, ElementsAre("n1"));
  EXPECT_THAT(Names(result.plan), ElementsAre("n0", "n1", "n2 spare"));
}

TEST(ReplaceUnfit, NeverUsesUnfitSpare) {
  const Replacements result = ReplaceUnfit(Plan(2, 2), {{"n1", true}, {"n2", false}});
  EXPECT_THAT(Names(result.plan), ElementsAre("n0", "n3"));
  EXPECT_THAT(result.notices,
              ElementsAre("n1 is set aside; spare n3 gets its ranks", "spare n2 is set aside"));
}

TEST(ReplaceUnfit, ShrinksElasticJobDownToItsMinimum) {
  LaunchPlan plan = Plan(3, 0);
  plan.min_nodes = 2;
  const Replacements result = ReplaceUnfit(plan, {{"n0", false}, {"n1", false}});
  EXPECT_THAT(Names(result.plan), ElementsAre("n1", "n2"));
  EXPECT_EQ(2, result.plan.max_nodes);
  EXPECT_THAT(result.notices, ElementsAre("n0 is set aside; the job begins with 2 nodes",
                                          "n1 keeps its ranks, because there is no spare for it"));
}

TEST(ReplaceUnfit, ReportsFailingMachineThatIsNotInPlan) {
  const Replacements result = ReplaceUnfit(Plan(2, 1), {{"localhost", true}, {"this", false}});
  EXPECT_THAT(result.missing, ElementsAre("localhost"));
  EXPECT_THAT(Names(result.plan), ElementsAre("n0", "n1", "n2 spare"));
}

TEST(ReplaceUnfit, KeepsPlanOfFitNodes) {
  const Replacements result = ReplaceUnfit(Plan(2, 1), {});
  EXPECT_THAT(Names(result.plan), ElementsAre("n0", "n1", "n2 spare"));
  EXPECT_THAT(result.notices, IsEmpty());
}

}  // namespace
}  // namespace dslaunch

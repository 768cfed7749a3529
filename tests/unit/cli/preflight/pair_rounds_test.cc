#include "cli/preflight/pair_rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

namespace dslaunch {
namespace {

TEST(PlanRounds, PairsEachNodeWithTwoOthers) {
  for (size_t nodes = 3; nodes <= 65; ++nodes) {
    const std::vector<PairRound> rounds = PlanRounds(nodes);
    EXPECT_EQ(nodes % 2 == 0 ? 2u : 3u, rounds.size());
    std::map<size_t, std::set<size_t>> partners;
    for (const PairRound& round : rounds) {
      std::set<size_t> busy;
      for (const NodePair& pair : round) {
        EXPECT_TRUE(busy.insert(pair.serving).second) << nodes;
        EXPECT_TRUE(busy.insert(pair.measuring).second) << nodes;
        partners[pair.serving].insert(pair.measuring);
        partners[pair.measuring].insert(pair.serving);
      }
    }
    EXPECT_EQ(nodes, partners.size());
    for (const auto& [node, others] : partners) EXPECT_EQ(2u, others.size()) << node;
  }
}

TEST(PlanRounds, PairsTwoNodesOnce) {
  EXPECT_THAT(PlanRounds(2), testing::ElementsAre(PairRound{{0, 1}}));
  EXPECT_THAT(PlanRounds(1), testing::IsEmpty());
  EXPECT_THAT(PlanRounds(0), testing::IsEmpty());
}

TEST(PlanConfirmation, UsesEachPartnerOnceInARound) {
  EXPECT_THAT(PlanConfirmation({1, 4, 5}, {0, 2}),
              testing::ElementsAre(PairRound{{0, 1}, {2, 4}}, PairRound{{0, 5}}));
  EXPECT_THAT(PlanConfirmation({1}, {}), testing::IsEmpty());
}

}  // namespace
}  // namespace dslaunch

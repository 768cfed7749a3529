#include "rendezvous/quorum.h"

#include <gtest/gtest.h>

namespace dslaunch {
namespace {

using Verdict = QuorumDecision::Verdict;

QuorumOptions TwoNodes() {
  QuorumOptions options;
  for (const char* name : {"node1", "node2"}) {
    pb::Node node;
    node.set_name(name);
    node.set_slots(2);
    options.nodes.push_back(node);
  }
  options.join_deadline = Clock::time_point(milliseconds(1000));
  return options;
}

Member Joined(uint32_t index, const std::string& identity) { return {index, 2, identity, "", 0}; }

Clock::time_point At(int ms) { return Clock::time_point(milliseconds(ms)); }

TEST(QuorumTest, WaitsForTheMissingAndNamesThem) {
  const QuorumDecision decision = DecideQuorum(At(0), {Joined(0, "a")}, TwoNodes());
  EXPECT_EQ(decision.verdict, Verdict::kWait);
  EXPECT_EQ(decision.reason, "waiting for node2");
}

TEST(QuorumTest, FormsWithAllNodesEvenAtTheDeadline) {
  EXPECT_EQ(DecideQuorum(At(2000), {Joined(0, "a"), Joined(1, "b")}, TwoNodes()).verdict,
            Verdict::kForm);
}

TEST(QuorumTest, TimesOutNamingWhoIsMissing) {
  EXPECT_EQ(DecideQuorum(At(999), {Joined(0, "a")}, TwoNodes()).verdict, Verdict::kWait);
  const QuorumDecision decision = DecideQuorum(At(1000), {Joined(0, "a")}, TwoNodes());
  EXPECT_EQ(decision.verdict, Verdict::kFail);
  EXPECT_EQ(decision.cause.kind(), pb::Cause::TIMED_OUT);
  EXPECT_EQ(decision.cause.exit_code(), 75);
  EXPECT_EQ(decision.cause.node_index(), 1u);
  EXPECT_NE(decision.cause.message().find("node2 did not join"), std::string::npos)
      << decision.cause.message();
}

TEST(QuorumTest, OneMachineUnderTwoNamesIsAnErrorNamingBoth) {
  const QuorumDecision decision =
      DecideQuorum(At(0), {Joined(0, "same"), Joined(1, "same")}, TwoNodes());
  EXPECT_EQ(decision.verdict, Verdict::kFail);
  EXPECT_EQ(decision.cause.exit_code(), 65);
  EXPECT_NE(decision.cause.message().find("node1 and node2 are the same machine"),
            std::string::npos);
}

TEST(QuorumTest, TheLocalLauncherMayHaveOneMachineTwice) {
  QuorumOptions options = TwoNodes();
  options.one_machine = true;
  EXPECT_EQ(DecideQuorum(At(0), {Joined(0, "same"), Joined(1, "same")}, options).verdict,
            Verdict::kForm);
}

TEST(RanksTest, FollowHostfileOrderWhateverTheOrderOfJoining) {
  const RankAssignment ranks =
      AssignRanks({{2, 1, "c", "10.0.0.7", 0}, {0, 3, "a", "", 29500}, {1, 2, "b", "10.0.0.1", 0}});
  ASSERT_EQ(ranks.blocks.size(), 3u);
  EXPECT_EQ(ranks.world_size, 6u);
  const uint32_t first_ranks[] = {0, 3, 5};
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ranks.blocks[i].node_index, i);
    EXPECT_EQ(ranks.blocks[i].node_rank, i);
    EXPECT_EQ(ranks.blocks[i].first_rank, first_ranks[i]);
  }
  EXPECT_EQ(ranks.master_port, 29500u);
  EXPECT_EQ(ranks.master_addr, "10.0.0.1");  // as the first other node reaches it
}

TEST(RanksTest, AloneTheMasterIsLoopback) {
  EXPECT_EQ(AssignRanks({{0, 4, "a", "", 1234}}).master_addr, "127.0.0.1");
}

}  // namespace
}  // namespace dslaunch

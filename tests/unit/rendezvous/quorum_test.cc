#include "rendezvous/quorum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::quorum_test {
namespace {

using Verdict = QuorumDecision::Verdict;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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

Member Joined(uint32_t index, const std::string& identity) {
  return {index, 2, identity, "", 0, ""};
}

Clock::time_point At(int ms) { return Clock::time_point(milliseconds(ms)); }

TEST(QuorumTest, WaitsForMissingNodesAndNamesThem) {
  const QuorumDecision decision = DecideQuorum(At(0), {Joined(0, "a")}, TwoNodes());
  EXPECT_EQ(decision.verdict, Verdict::kWait);
  EXPECT_EQ(decision.reason, "waiting for node2");
}

TEST(QuorumTest, FormsWithAllNodesEvenAtTheDeadline) {
  EXPECT_EQ(DecideQuorum(At(2000), {Joined(0, "a"), Joined(1, "b")}, TwoNodes()).verdict,
            Verdict::kForm);
}

TEST(QuorumTest, TimesOutNamingMissingNodes) {
  EXPECT_EQ(DecideQuorum(At(999), {Joined(0, "a")}, TwoNodes()).verdict, Verdict::kWait);
  const QuorumDecision decision = DecideQuorum(At(1000), {Joined(0, "a")}, TwoNodes());
  EXPECT_EQ(decision.verdict, Verdict::kFail);
  EXPECT_EQ(decision.cause.kind(), pb::Cause::TIMED_OUT);
  EXPECT_EQ(decision.cause.exit_code(), 75);
  EXPECT_EQ(decision.cause.node_index(), 1u);
  EXPECT_NE(decision.cause.message().find("node2 did not join"), std::string::npos)
      << decision.cause.message();
}

TEST(QuorumTest, RejectsOneMachineUnderTwoNames) {
  const QuorumDecision decision =
      DecideQuorum(At(0), {Joined(0, "same"), Joined(1, "same")}, TwoNodes());
  EXPECT_EQ(decision.verdict, Verdict::kFail);
  EXPECT_EQ(decision.cause.exit_code(), 65);
  EXPECT_NE(decision.cause.message().find("node1 and node2 are the same machine"),
            std::string::npos);
}

TEST(QuorumTest, AllowsSharedMachineOnRequest) {
  QuorumOptions options = TwoNodes();
  options.may_share_machine = true;
  EXPECT_EQ(DecideQuorum(At(0), {Joined(0, "same"), Joined(1, "same")}, options).verdict,
            Verdict::kForm);
}

// Returns a job with the nodes 0, 1 and 2, and the spares 3 and 4. Two to three nodes run the job.
QuorumOptions Elastic() {
  QuorumOptions options;
  for (int i = 0; i < 5; ++i) {
    pb::Node node;
    node.set_name("node" + std::to_string(i));
    node.set_slots(2);
    node.set_spare(i >= 3);
    options.nodes.push_back(node);
  }
  options.min_nodes = 2;
  options.max_nodes = 3;
  options.join_deadline = At(1000);
  return options;
}

std::vector<Member> Members(const std::vector<uint32_t>& indexes) {
  std::vector<Member> members;
  for (const uint32_t index : indexes) members.push_back(Joined(index, std::to_string(index)));
  return members;
}

std::vector<uint32_t> Picked(const std::vector<uint32_t>& joined, const QuorumOptions& options) {
  std::vector<uint32_t> indexes;
  for (const Member& member : PickMembers(Members(joined), options))
    indexes.push_back(member.node_index);
  return indexes;
}

TEST(PickTest, SparesReplaceMissingNodes) {
  EXPECT_THAT(Picked({4, 3, 2, 1, 0}, Elastic()), ElementsAre(0, 1, 2));
  EXPECT_THAT(Picked({0, 2, 3, 4}, Elastic()), ElementsAre(0, 2, 3));
  EXPECT_THAT(Picked({4, 2}, Elastic()), ElementsAre(2, 4));
}

TEST(PickTest, PicksAtMostMaxNodesAndRegularNodes) {
  QuorumOptions options = Elastic();
  options.max_nodes = 2;
  EXPECT_THAT(Picked({0, 1, 2, 3}, options), ElementsAre(0, 1));
  // Spares only replace regular nodes, even if more nodes may run.
  options.max_nodes = 5;
  EXPECT_THAT(Picked({0, 1, 2, 3, 4}, options), ElementsAre(0, 1, 2));
}

TEST(PickTest, UsesNodesSetAsideAsLastResort) {
  QuorumOptions options = Elastic();
  options.set_aside = {0};
  EXPECT_THAT(Picked({0, 1, 2, 3}, options), ElementsAre(1, 2, 3));
  EXPECT_THAT(Picked({0, 1, 2}, options), ElementsAre(1, 2));
  EXPECT_THAT(Picked({0, 1}, options), ElementsAre(0, 1));
  const QuorumDecision decision = DecideQuorum(At(1000), Members({0, 1}), options);
  EXPECT_THAT(decision.reason, HasSubstr("node0 too, though it failed often"));
}

TEST(PickTest, UsesUnfitNodesAfterNodesSetAside) {
  QuorumOptions options = Elastic();
  options.unfit = {0, 3};
  options.set_aside = {1};
  EXPECT_THAT(Picked({0, 1, 2, 3, 4}, options), ElementsAre(2, 4));
  EXPECT_THAT(Picked({0, 1, 2}, options), ElementsAre(1, 2));
  EXPECT_THAT(Picked({0, 2}, options), ElementsAre(0, 2));
  const QuorumDecision decision = DecideQuorum(At(1000), Members({0, 2}), options);
  EXPECT_THAT(decision.reason, HasSubstr("node0 too, though it is unfit"));
}

TEST(QuorumTest, WaitsForSparesOnlyWhenNeeded) {
  QuorumOptions options = Elastic();
  EXPECT_EQ(DecideQuorum(At(0), Members({0, 1, 2}), options).verdict, Verdict::kForm);
  options.absent = {1};
  const QuorumDecision wait = DecideQuorum(At(0), Members({0, 2, 4}), options);
  EXPECT_EQ(wait.verdict, Verdict::kForm);
  EXPECT_EQ(wait.reason, "node0, node2, node4 get ranks; without node1");
  EXPECT_EQ(DecideQuorum(At(0), Members({0, 2}), options).reason, "waiting for node3, node4");
}

TEST(QuorumTest, FormsWithEnoughNodesAtTheDeadline) {
  EXPECT_EQ(DecideQuorum(At(999), Members({0, 2}), Elastic()).verdict, Verdict::kWait);
  const QuorumDecision decision = DecideQuorum(At(1000), Members({0, 2}), Elastic());
  EXPECT_EQ(decision.verdict, Verdict::kForm);
  EXPECT_EQ(decision.reason, "node0, node2 get ranks; without node1, node3, node4");
  EXPECT_EQ(DecideQuorum(At(1000), Members({2}), Elastic()).verdict, Verdict::kFail);
}

TEST(QuorumTest, TooFewNodesWaitForAnother) {
  QuorumOptions options = Elastic();
  options.absent = {0, 1, 3, 4};
  const QuorumDecision wait = DecideQuorum(At(0), Members({2}), options);
  EXPECT_EQ(wait.verdict, Verdict::kWait);
  EXPECT_EQ(wait.reason, "waiting for another node");
  const QuorumDecision fail = DecideQuorum(At(1000), Members({2}), options);
  EXPECT_EQ(fail.verdict, Verdict::kFail);
  EXPECT_EQ(fail.reason, "only 1 of at least 2 nodes are available, and no other joined in time");
}

TEST(RanksTest, MasterIsAddressOfFirstNodesConnection) {
  const RankAssignment assigned = AssignRanks({{2, 1, "c", "10.0.0.1", 29502, "10.0.0.4"},
                                               {1, 1, "b", "10.0.0.1", 29501, "10.0.0.2", 4711}});
  EXPECT_EQ(assigned.master_addr, "10.0.0.2");
  EXPECT_EQ(assigned.master_port, 29501u);
  EXPECT_EQ(assigned.link_port, 4711u);
}

TEST(RanksTest, RanksFollowHostfileOrder) {
  const RankAssignment assigned = AssignRanks({{2, 1, "c", "10.0.0.7", 0, "10.0.0.4"},
                                               {0, 3, "a", "", 29500, ""},
                                               {1, 2, "b", "10.0.0.1", 0, "10.0.0.2"}});
  ASSERT_EQ(assigned.ranks.blocks.size(), 3u);
  EXPECT_EQ(assigned.ranks.world_size, 6u);
  const uint32_t first_ranks[] = {0, 3, 5};
  for (uint32_t i = 0; i < 3; ++i) {
    const RankBlock& block = assigned.ranks.blocks[i];
    EXPECT_EQ(block.node_index, i);
    EXPECT_EQ(block.node_rank, i);
    EXPECT_EQ(block.first_rank, first_ranks[i]);
    const pb::Assignment assignment = AssignmentOf(assigned.ranks, block);
    EXPECT_EQ(assignment.first_rank(), first_ranks[i]);
    EXPECT_EQ(assignment.node_rank(), i);
    EXPECT_EQ(assignment.world_size(), 6u);
    EXPECT_EQ(assignment.num_nodes(), 3u);
  }
  EXPECT_EQ(assigned.master_port, 29500u);
  EXPECT_EQ(assigned.master_addr, "10.0.0.1");  // the address that the first other node uses
}

TEST(RanksTest, NumbersRanksOfEachRoleSeparately) {
  std::vector<Member> members = {Joined(0, "a"), Joined(1, "b"), Joined(2, "c")};
  members[0].role = members[2].role = "trainer";
  members[1].role = "reader";
  const std::vector<RolePlace> places = PlacesInRoles(members);
  const uint32_t first_ranks[] = {0, 0, 2};
  const uint32_t world_sizes[] = {4, 2, 4};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(places[i].first_rank, first_ranks[i]);
    EXPECT_EQ(places[i].world_size, world_sizes[i]);
  }
}

TEST(RanksTest, MasterOfASingleNodeIsLoopback) {
  EXPECT_EQ(AssignRanks({{0, 4, "a", "", 1234, ""}}).master_addr, "127.0.0.1");
}

}  // namespace
}  // namespace dslaunch::quorum_test

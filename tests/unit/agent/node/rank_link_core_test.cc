#include "agent/node/rank_link_core.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::rank_link_core_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = RankLinkMessage::Kind;

UniqueFd SomeFd() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

RankLinkMessage Hello(uint32_t rank, uint64_t attempt = 1) {
  RankLinkMessage message;
  message.kind = Kind::kHello;
  message.from = rank;
  message.attempt = attempt;
  return message;
}

RankLinkMessage Dial(uint32_t to, const std::string& endpoints = "", uint32_t node = 0) {
  RankLinkMessage message;
  message.kind = Kind::kDial;
  message.to = to;
  message.node = node;
  message.label = "label";
  message.text = endpoints;
  return message;
}

// Returns a message as another agent sends it.
RankLinkMessage From(uint32_t from, uint32_t to, uint64_t attempt = 1) {
  RankLinkMessage message = Dial(to);
  message.from = from;
  message.attempt = attempt;
  return message;
}

// Tests node 1, which has ranks 2 and 3 of 6. Ranks 0 and 1 are on node 0, ranks 4 and 5 on node 3.
class RankLinkCoreTest : public ::testing::Test {
 protected:
  RankLinkCoreTest() { core_.OnAttempt(Plan(1)); }

  static RankLinkPlan Plan(uint64_t attempt) {
    return {attempt, NumberRanks({{0, 2}, {1, 2}, {3, 2}}), "10.0.0.1:99"};
  }

  template <class Action>
  static Action Only(RankLinkActions actions) {
    EXPECT_THAT(actions, SizeIs(1));
    Action* const action = actions.empty() ? nullptr : std::get_if<Action>(&actions.front());
    if (action == nullptr) throw std::runtime_error("another action");
    return std::move(*action);
  }

  RankLinkCore core_{1};
};

TEST_F(RankLinkCoreTest, WelcomesRankWithAddressesOfItsNode) {
  const auto sent =
      Only<rank_link_action::Send>(core_.OnMessage(7, Hello(3), "10.0.0.2:5 10.0.1.2:5"));
  EXPECT_EQ(sent.session, 7u);
  EXPECT_EQ(sent.message.kind, Kind::kWelcome);
  EXPECT_EQ(sent.message.node, 1u);
  EXPECT_EQ(sent.message.text, "10.0.0.2:5 10.0.1.2:5");
}

TEST_F(RankLinkCoreTest, ClosesSessionsOfOtherNodesOrAttempts) {
  for (const RankLinkMessage& message : {Hello(1), Hello(6), Hello(2, 2), Hello(2, 0), Dial(3)}) {
    const auto closed = Only<rank_link_action::Close>(core_.OnMessage(1, message, ""));
    EXPECT_EQ(closed.session, 1u);
    EXPECT_FALSE(closed.why.empty());
  }
}

TEST_F(RankLinkCoreTest, ConnectsRanksOfOneNodeLocally) {
  core_.OnMessage(1, Hello(2), "");
  core_.OnMessage(2, Hello(3), "");
  const auto here = Only<rank_link_action::ConnectHere>(core_.OnMessage(1, Dial(3), ""));
  EXPECT_EQ(here.message.from, 2u);
  const auto own = Only<rank_link_action::Send>(core_.OnConnected(1, here.message, SomeFd()));
  EXPECT_EQ(own.session, 1u);
  EXPECT_EQ(own.message.kind, Kind::kLink);
  EXPECT_TRUE(own.fd.valid());
  const auto other = Only<rank_link_action::Send>(core_.OnIncoming(here.message, 1, SomeFd()));
  EXPECT_EQ(other.session, 2u);
  EXPECT_EQ(other.message.from, 2u);
  EXPECT_EQ(other.message.to, 3u);
  EXPECT_EQ(other.message.label, "label");
  EXPECT_TRUE(other.fd.valid());
}

TEST_F(RankLinkCoreTest, DialsRankOfAnotherNodeAtGivenEndpoint) {
  core_.OnMessage(1, Hello(2), "");
  const auto to =
      Only<rank_link_action::ConnectTo>(core_.OnMessage(1, Dial(4, "10.0.0.9:7", 3), ""));
  EXPECT_EQ(to.message.node, 3u);
  EXPECT_EQ(to.message.text, "10.0.0.9:7");
  EXPECT_EQ(to.message.from, 2u);
  EXPECT_EQ(to.message.attempt, 1u);
}

TEST_F(RankLinkCoreTest, DialsRank0AtEndpointOfAssignment) {
  core_.OnMessage(1, Hello(2), "");
  const auto to = Only<rank_link_action::ConnectTo>(core_.OnMessage(1, Dial(0), ""));
  EXPECT_EQ(to.message.node, 0u);
  EXPECT_EQ(to.message.text, "10.0.0.1:99");
}

TEST_F(RankLinkCoreTest, ReportsWhyRankCannotBeConnected) {
  core_.OnMessage(1, Hello(2), "");
  for (const auto& [message, why] : std::vector<std::pair<RankLinkMessage, std::string>>{
           {Dial(6), "no other rank 6"},
           {Dial(2), "no other rank 2"},
           {Dial(1), "did not say where"},
           {Dial(4, "10.0.0.9:7", 0), "rank 4 runs on node 3"}}) {
    const auto failed = Only<rank_link_action::Send>(core_.OnMessage(1, message, ""));
    EXPECT_EQ(failed.message.kind, Kind::kFailed);
    EXPECT_EQ(failed.message.to, message.to);
    EXPECT_THAT(failed.message.text, HasSubstr(why));
  }
}

TEST_F(RankLinkCoreTest, HoldsConnectionUntilItsRankArrives) {
  EXPECT_THAT(core_.OnIncoming(From(0, 3), 0, SomeFd()), IsEmpty());
  EXPECT_THAT(core_.OnMessage(1, Hello(2), ""), SizeIs(1));
  RankLinkActions actions = core_.OnMessage(2, Hello(3), "");
  ASSERT_THAT(actions, SizeIs(2));
  auto& link = std::get<rank_link_action::Send>(actions[1]);
  EXPECT_EQ(link.message.kind, Kind::kLink);
  EXPECT_EQ(link.message.from, 0u);
  EXPECT_TRUE(link.fd.valid());
}

TEST_F(RankLinkCoreTest, HoldsNextAttemptConnectionsAndClosesOldOnes) {
  EXPECT_THAT(core_.OnIncoming(From(0, 3, 2), 0, SomeFd()), IsEmpty());
  core_.OnMessage(1, Hello(3), "");
  const auto ended = Only<rank_link_action::Close>(core_.OnAttempt(Plan(2)));
  EXPECT_EQ(ended.session, 1u);
  EXPECT_THAT(core_.OnMessage(2, Hello(3, 2), ""), SizeIs(2)) << "welcome and connection";
  EXPECT_THAT(core_.OnIncoming(From(0, 3, 1), 0, SomeFd()), IsEmpty());
}

TEST_F(RankLinkCoreTest, DropsConnectionsForOtherNodes) {
  core_.OnMessage(1, Hello(2), "");
  core_.OnMessage(2, Hello(3), "");
  EXPECT_THAT(core_.OnIncoming(From(0, 1), 0, SomeFd()), IsEmpty());
  RankLinkMessage hello = Hello(2);
  EXPECT_THAT(core_.OnIncoming(hello, 0, SomeFd()), IsEmpty());
}

TEST_F(RankLinkCoreTest, RefusesConnectionsForRanksOfAnotherNode) {
  core_.OnMessage(1, Hello(2), "");
  for (const auto& [from, node] : std::vector<std::pair<uint32_t, uint32_t>>{
           {4, 0}, {0, 3}, {0, 2}, {3, 0}, {0, 1}, {6, 3}, {0xffffffff, 3}}) {
    const auto refusal =
        Only<rank_link_action::LogRefusal>(core_.OnIncoming(From(from, 2), node, SomeFd()));
    EXPECT_EQ(refusal.why,
              "node " + std::to_string(node) + " says that it has rank " + std::to_string(from));
  }
  for (const auto& [from, node] :
       std::vector<std::pair<uint32_t, uint32_t>>{{0, 0}, {1, 0}, {3, 1}, {4, 3}, {5, 3}}) {
    Only<rank_link_action::Send>(core_.OnIncoming(From(from, 2), node, SomeFd()));
  }
}

TEST_F(RankLinkCoreTest, RefusesForeignRanksOfNextAttempt) {
  EXPECT_THAT(core_.OnIncoming(From(4, 3, 2), 0, SomeFd()), IsEmpty());
  EXPECT_THAT(core_.OnIncoming(From(4, 3, 2), 3, SomeFd()), IsEmpty());
  core_.OnAttempt(Plan(2));
  EXPECT_THAT(core_.OnMessage(2, Hello(3, 2), ""), SizeIs(2)) << "welcome, and node 3's alone";
}

TEST_F(RankLinkCoreTest, SendsNothingAfterSessionEnd) {
  core_.OnMessage(1, Hello(2), "");
  const auto to = Only<rank_link_action::ConnectTo>(core_.OnMessage(1, Dial(0), ""));
  core_.OnSessionEnd(1);
  EXPECT_THAT(core_.OnConnected(1, to.message, SomeFd()), IsEmpty());
  EXPECT_THAT(core_.OnFailed(1, to.message, "late"), IsEmpty());
  EXPECT_THAT(core_.OnIncoming(From(0, 2), 0, SomeFd()), IsEmpty()) << "it waits for rank 2";
}

// The PMIx server uses the number of its node's first rank, which may have its own connections.
TEST_F(RankLinkCoreTest, KeepsPmixServerApartFromRankOfSameNumber) {
  RankLinkMessage of_server = Hello(2);
  of_server.label = kPmixLinkLabel;
  core_.OnMessage(1, of_server, "");
  EXPECT_EQ(core_.service_sessions(), 1u);
  core_.OnMessage(2, Hello(2), "");
  EXPECT_EQ(core_.service_sessions(), 1u);
  RankLinkMessage to_server = From(0, 2);
  to_server.label = kPmixLinkLabel;
  EXPECT_EQ(Only<rank_link_action::Send>(core_.OnIncoming(to_server, 0, SomeFd())).session, 1u);
  EXPECT_EQ(Only<rank_link_action::Send>(core_.OnIncoming(From(0, 2), 0, SomeFd())).session, 2u);
  core_.OnSessionEnd(1);
  EXPECT_EQ(core_.service_sessions(), 0u);
  EXPECT_THAT(core_.OnIncoming(to_server, 0, SomeFd()), IsEmpty()) << "it waits for the server";
}

TEST_F(RankLinkCoreTest, KeepsAgreementOnCopiesApartFromRank) {
  RankLinkMessage hello = Hello(2);
  hello.label = kMemoryLinkLabel;
  core_.OnMessage(1, hello, "");
  core_.OnMessage(2, Hello(2), "");
  EXPECT_EQ(core_.service_sessions(), 1u);
  RankLinkMessage link = From(0, 2);
  link.label = kMemoryLinkLabel;
  EXPECT_EQ(Only<rank_link_action::Send>(core_.OnIncoming(link, 0, SomeFd())).session, 1u);
}

}  // namespace
}  // namespace dslaunch::rank_link_core_test

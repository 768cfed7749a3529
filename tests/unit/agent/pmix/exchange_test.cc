#include "agent/pmix/exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <stdexcept>

#include "tests/support/pmix_job.h"

namespace dslaunch::exchange_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Simulates the servers of all nodes, whose messages arrive at once. `ended` and `asked` contain
// the results and requests that each node's PMIx library receives.
class Servers {
 public:
  explicit Servers(const std::vector<uint32_t>& ranks) {
    for (uint32_t node = 0; node < ranks.size(); ++node)
      nodes_.emplace_back(PmixJobOf(ranks, node));
  }

  void Fence(uint32_t node, uint64_t id, const std::vector<uint32_t>& ranks,
             const std::string& data) {
    CarryOut(node, nodes_[node].OnLocalFence(id, ranks, data));
  }
  void Request(uint32_t node, uint64_t id, uint32_t rank) {
    CarryOut(node, nodes_[node].OnLocalRequest(id, rank));
  }
  void Reply(uint32_t node, const std::string& data) {
    pb::ModexReply reply = ReplyTo(asked.at(node));
    reply.set_data(data);
    CarryOut(node, nodes_[node].OnLocalReply(reply));
  }
  void Gone(uint32_t at, uint32_t node) { CarryOut(at, nodes_[at].OnNodeGone(node)); }

  // Results by node and id: the data, or "failed: " and the reason.
  std::map<std::pair<uint32_t, uint64_t>, std::string> ended;
  std::map<uint32_t, pb::ModexRequest> asked;

 private:
  void CarryOut(uint32_t node, PmixActions actions) {
    for (PmixAction& action : actions) {
      if (auto* send = std::get_if<pmix_action::Send>(&action)) {
        Result<PmixActions> next = nodes_.at(send->node_rank).OnMessage(node, send->message);
        if (!next.ok()) throw std::runtime_error(next.error().message);
        CarryOut(send->node_rank, *std::move(next));
      } else if (auto* fence = std::get_if<pmix_action::EndFence>(&action)) {
        End(node, fence->id, fence->data, fence->failure);
      } else if (auto* request = std::get_if<pmix_action::EndRequest>(&action)) {
        End(node, request->id, request->data, request->failure);
      } else {
        asked[node] = std::get<pmix_action::AskLibrary>(action).request;
      }
    }
  }
  void End(uint32_t node, uint64_t id, const std::string& data, const std::string& failure) {
    const bool is_first =
        ended.emplace(std::pair(node, id), failure.empty() ? data : "failed: " + failure).second;
    EXPECT_TRUE(is_first) << "ended twice";
  }

  std::deque<PmixExchange> nodes_;
};

TEST(PmixExchangeTest, FenceEndsOnEachNodeOnceAllHaveEntered) {
  Servers servers({2, 2, 1});
  servers.Fence(1, 11, {}, "b");
  servers.Fence(0, 10, {}, "a");
  EXPECT_THAT(servers.ended, IsEmpty());
  servers.Fence(2, 12, {}, "c");
  for (const auto& [node, id] : {std::pair(0u, 10u), {1u, 11u}, {2u, 12u}}) {
    std::string data = servers.ended.at({node, id});
    std::ranges::sort(data);
    EXPECT_EQ(data, "abc");
  }
  EXPECT_EQ(servers.ended.size(), 3u);
}

TEST(PmixExchangeTest, FenceOfSomeRanksNeedsOnlyTheirNodes) {
  Servers servers({2, 2, 1});
  servers.Fence(1, 1, {3, 4}, "b");
  servers.Fence(2, 2, {3, 4}, "c");
  EXPECT_EQ(servers.ended.at({1, 1}), "bc");
  EXPECT_EQ(servers.ended.at({2, 2}), "bc");
  EXPECT_EQ(servers.ended.size(), 2u);
}

TEST(PmixExchangeTest, MatchesFencesOfTheSameRanksInOrder) {
  Servers servers({1, 1});
  servers.Fence(0, 1, {}, "a1");
  servers.Fence(0, 2, {}, "a2");
  servers.Fence(1, 1, {}, "b1");
  EXPECT_EQ(servers.ended.at({0, 1}), "a1b1");
  EXPECT_FALSE(servers.ended.contains({0, 2}));
  servers.Fence(1, 2, {}, "b2");
  EXPECT_EQ(servers.ended.at({1, 2}), "a2b2");
}

TEST(PmixExchangeTest, ForwardsRequestsForARankThroughTheHub) {
  Servers servers({1, 1, 1});
  servers.Request(1, 5, 2);
  ASSERT_TRUE(servers.asked.contains(2));
  EXPECT_EQ(servers.asked.at(2).rank(), 2u);
  servers.Reply(2, "of rank 2");
  EXPECT_EQ(servers.ended.at({1, 5}), "of rank 2");
  servers.Request(0, 6, 1);
  servers.Reply(1, "of rank 1");
  EXPECT_EQ(servers.ended.at({0, 6}), "of rank 1");
  servers.Request(1, 7, 1);  // rank 1 is on the requesting node
  EXPECT_THAT(servers.ended.at({1, 7}), HasSubstr("failed"));
}

TEST(PmixExchangeTest, FailsFencesAndRequestsForEndedNode) {
  Servers servers({1, 1, 1});
  servers.Fence(1, 1, {}, "b");
  servers.Request(1, 9, 2);
  servers.Gone(0, 2);
  EXPECT_FALSE(servers.ended.contains({1, 1})) << "node 0 can still come";
  servers.Fence(0, 1, {}, "a");
  EXPECT_THAT(servers.ended.at({0, 1}), HasSubstr("failed: the ranks of a node"));
  EXPECT_THAT(servers.ended.at({1, 1}), HasSubstr("failed"));
  servers.Gone(1, 0);
  EXPECT_THAT(servers.ended.at({1, 9}), HasSubstr("failed"));
  servers.Fence(1, 2, {}, "b");
  EXPECT_THAT(servers.ended.at({1, 2}), HasSubstr("failed"));
}

TEST(PmixExchangeTest, HubAnswersForANodeThatHasEnded) {
  Servers servers({1, 1, 1, 1});
  servers.Request(1, 9, 2);
  servers.Request(3, 8, 2);
  servers.Request(2, 7, 1);
  servers.Gone(0, 2);  // nodes 1 and 3 are not notified
  EXPECT_THAT(servers.ended.at({1, 9}), HasSubstr("failed: the ranks of a node"));
  EXPECT_THAT(servers.ended.at({3, 8}), HasSubstr("failed: the ranks of a node"));
  servers.Request(1, 10, 2);
  EXPECT_THAT(servers.ended.at({1, 10}), HasSubstr("failed: the ranks of a node"));
  servers.Reply(1, "too late for node 2");
  EXPECT_FALSE(servers.ended.contains({2, 7}));
  servers.Request(1, 11, 3);
  servers.Reply(3, "of rank 3");
  EXPECT_EQ(servers.ended.at({1, 11}), "of rank 3");
}

TEST(PmixExchangeTest, TooMuchDataFailsTheFenceOnAllNodes) {
  Servers servers({1, 1});
  const std::string much(PmixExchange::kMaxFenceBytes / 2 + 1, 'x');
  servers.Fence(0, 1, {}, much);
  servers.Fence(1, 1, {}, much);
  EXPECT_THAT(servers.ended.at({0, 1}), HasSubstr("15 MiB"));
  EXPECT_THAT(servers.ended.at({1, 1}), HasSubstr("15 MiB"));
}

TEST(PmixExchangeTest, RejectsInvalidMessages) {
  const auto refused = [](uint32_t node_rank, uint32_t from, const pb::PmixMessage& message) {
    PmixExchange exchange(PmixJobOf({1, 1, 1}, node_rank));
    return !exchange.OnMessage(from, message).ok();
  };
  pb::PmixMessage message;
  EXPECT_TRUE(refused(0, 1, message));
  message.mutable_part()->mutable_fence()->add_ranks(3);  // no node has rank 3
  EXPECT_TRUE(refused(0, 1, message));
  message.mutable_part()->mutable_fence()->set_ranks(0, 2);  // rank 2 is on another node
  EXPECT_TRUE(refused(0, 1, message));
  EXPECT_FALSE(refused(0, 2, message));
  EXPECT_TRUE(refused(1, 0, message)) << "only node 0 gathers";
  message.mutable_part()->mutable_fence()->add_ranks(1);  // ranks are not in ascending order
  EXPECT_TRUE(refused(0, 2, message));
  message.Clear();
  message.mutable_end();
  EXPECT_TRUE(refused(1, 0, message));
  message.mutable_request()->set_rank(7);
  EXPECT_TRUE(refused(0, 1, message));
  message.mutable_request()->set_rank(0);
  message.mutable_request()->set_from_node(2);  // sent in the name of another node
  EXPECT_TRUE(refused(0, 1, message));
  message.mutable_reply()->set_rank(2);
  EXPECT_TRUE(refused(0, 1, message));
  message.mutable_reply()->set_rank(1);
  EXPECT_TRUE(refused(0, 1, message)) << "it was not asked for";
  message.mutable_reply()->set_from_node(2);
  EXPECT_TRUE(refused(0, 1, message)) << "node 2 did not ask for it";
}

TEST(PmixExchangeTest, RejectsSecondPartOfTheSameNode) {
  PmixExchange exchange(PmixJobOf({1, 1, 1}, 0));
  pb::PmixMessage message;
  message.mutable_part()->mutable_fence()->set_number(0);
  EXPECT_TRUE(exchange.OnMessage(1, message).ok());
  EXPECT_FALSE(exchange.OnMessage(1, message).ok());
}

TEST(PmixExchangeTest, ChecksConsistencyOfTheJob) {
  EXPECT_TRUE(CheckPmixJob(PmixJobOf({2, 1}, 1)).ok());
  EXPECT_FALSE(CheckPmixJob(PmixJobOf({2, 1}, 2)).ok());
  EXPECT_FALSE(CheckPmixJob(PmixJobOf({2, 0}, 0)).ok());
  pb::PmixJob job = PmixJobOf({2, 1}, 0);
  job.mutable_nodes(1)->set_first_rank(3);
  EXPECT_FALSE(CheckPmixJob(job).ok());
}

}  // namespace
}  // namespace dslaunch::exchange_test

#include "agent/pmix/pmi_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/pmix_job.h"

namespace dslaunch::pmi_core_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kInit[] = "cmd=init pmi_version=1 pmi_subversion=1";

// Simulates the server of one node, and keeps the replies that its ranks receive.
class Node {
 public:
  Node(const std::vector<uint32_t>& ranks, uint32_t node_rank)
      : core_(PmixJobOf(ranks, node_rank)) {
    for (uint32_t rank = 0; rank < ranks[node_rank]; ++rank) Request(rank, kInit);
    replies.clear();
  }

  // Sends a line of `rank` and returns the reply without its newline; "" if there is no reply yet.
  std::string Request(uint32_t rank, const std::string& line) {
    replies[rank].clear();
    Result<PmiActions> actions = core_.OnLine(rank, line);
    if (!actions.ok()) return "refused: " + actions.error().message;
    CarryOut(*std::move(actions));
    return replies[rank];
  }
  void Closed(uint32_t rank) { CarryOut(core_.OnClosed(rank)); }
  void EndFence(const std::string& data, const std::string& failure = "") {
    CarryOut(core_.OnFenceEnd(data, failure));
  }

  std::map<uint32_t, std::string> replies;
  std::vector<std::string> fences;
  std::vector<uint32_t> closed;
  std::vector<std::pair<uint32_t, int>> aborted;

 private:
  void CarryOut(const PmiActions& actions) {
    for (const PmiAction& action : actions) {
      if (const auto* reply = std::get_if<pmi_action::Reply>(&action)) {
        ASSERT_EQ(reply->line.find('\n'), reply->line.size() - 1);
        replies[reply->local_rank] = reply->line.substr(0, reply->line.size() - 1);
      } else if (const auto* fence = std::get_if<pmi_action::Fence>(&action)) {
        fences.push_back(fence->data);
      } else if (const auto* close = std::get_if<pmi_action::Close>(&action)) {
        closed.push_back(close->local_rank);
      } else {
        const auto& abort = std::get<pmi_action::Abort>(action);
        aborted.emplace_back(abort.rank, abort.code);
      }
    }
  }

  PmiCore core_;
};

TEST(PmiCoreTest, AnswersQueriesAboutTheRanksPlace) {
  Node node({2, 3}, 1);
  EXPECT_EQ(node.Request(0, "cmd=get_maxes"),
            "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024");
  EXPECT_EQ(node.Request(0, "cmd=get_appnum"), "cmd=appnum rc=0 appnum=0");
  EXPECT_EQ(node.Request(0, "cmd=get_my_kvsname"), "cmd=my_kvsname rc=0 kvsname=job.1");
  EXPECT_EQ(node.Request(0, "cmd=get_universe_size"), "cmd=universe_size rc=0 size=5");
  EXPECT_EQ(node.Request(0, "cmd=get kvsname=job.1 key=PMI_process_mapping"),
            "cmd=get_result rc=0 msg=success value=(vector,(0,1,2),(1,1,3))");
  EXPECT_EQ(node.Request(0, "cmd=finalize"), "cmd=finalize_ack rc=0");
  node.Closed(0);
  EXPECT_THAT(node.closed, IsEmpty());
}

TEST(PmiCoreTest, MapsNodesWithEqualRanksAsOneEntry) {
  EXPECT_EQ(PmiProcessMapping(PmixJobOf({4, 4, 4, 1}, 0)), "(vector,(0,3,4),(3,1,1))");
}

TEST(PmiCoreTest, PutValuesAreVisibleAfterTheBarrier) {
  Node first({2, 1}, 0);
  Node second({2, 1}, 1);
  EXPECT_EQ(first.Request(0, "cmd=put kvsname=job.1 key=P0 value=a=b#c"),
            "cmd=put_result rc=0 msg=success");
  first.Request(1, "cmd=put kvsname=job.1 key=P1 value=of-1");
  second.Request(0, "cmd=put kvsname=job.1 key=P2 value=of-2");
  EXPECT_THAT(second.Request(0, "cmd=get kvsname=job.1 key=P0"), HasSubstr("rc=-1"));
  EXPECT_EQ(first.Request(0, "cmd=barrier_in"), "");
  EXPECT_THAT(first.fences, IsEmpty()) << "rank 1 is not there";
  EXPECT_EQ(first.Request(1, "cmd=barrier_in"), "");
  second.Request(0, "cmd=barrier_in");
  ASSERT_EQ(first.fences.size() + second.fences.size(), 2u);
  const std::string all = first.fences[0] + second.fences[0];
  first.EndFence(all);
  second.EndFence(all);
  for (const uint32_t rank : {0u, 1u}) EXPECT_EQ(first.replies[rank], "cmd=barrier_out rc=0");
  EXPECT_EQ(second.replies[0], "cmd=barrier_out rc=0");
  EXPECT_EQ(second.Request(0, "cmd=get kvsname=job.1 key=P0"),
            "cmd=get_result rc=0 msg=success value=a=b#c");
  EXPECT_EQ(first.Request(1, "cmd=get kvsname=job.1 key=P2"),
            "cmd=get_result rc=0 msg=success value=of-2");
  // The next barrier publishes no new values.
  second.Request(0, "cmd=barrier_in");
  EXPECT_EQ(second.fences.at(1), "");
}

TEST(PmiCoreTest, FailedBarrierClosesWaitingRanks) {
  Node failed({2, 1}, 0);
  failed.Request(0, "cmd=barrier_in");
  failed.Request(1, "cmd=barrier_in");
  failed.EndFence("", "the ranks of a node that takes part have ended");
  EXPECT_EQ(failed.closed, (std::vector<uint32_t>{0, 1}));

  Node strange({1, 1}, 0);
  strange.Request(0, "cmd=barrier_in");
  strange.EndFence("no message");
  EXPECT_EQ(strange.closed, std::vector<uint32_t>{0});

  Node forged({1, 1}, 0);
  forged.Request(0, "cmd=barrier_in");
  pb::PmiValues values;
  values.add_values()->set_key("P1");
  values.mutable_values(0)->set_value("1\ncmd=barrier_out");
  forged.EndFence(values.SerializeAsString());
  EXPECT_EQ(forged.closed, std::vector<uint32_t>{0}) << "a value is a part of one line";
}

TEST(PmiCoreTest, DisconnectedRankBreaksTheBarrier) {
  Node node({3}, 0);
  node.Request(0, "cmd=barrier_in");
  node.Closed(1);
  EXPECT_EQ(node.closed, std::vector<uint32_t>{0});
  node.Request(2, "cmd=barrier_in");
  EXPECT_EQ(node.closed, (std::vector<uint32_t>{0, 2}));
  EXPECT_THAT(node.fences, IsEmpty());
}

TEST(PmiCoreTest, ReportsAbortWithTheRankInTheJob) {
  Node node({2, 3}, 1);
  node.Request(1, "cmd=abort exitcode=7");
  node.Request(2, "cmd=abort");
  EXPECT_EQ(node.aborted, (std::vector<std::pair<uint32_t, int>>{{3, 7}, {4, 1}}));
  EXPECT_THAT(node.closed, IsEmpty()) << "a library that loses its server does not exit";
}

TEST(PmiCoreTest, RejectsUnsupportedCommandsWithinTheProtocol) {
  Node node({1}, 0);
  EXPECT_THAT(node.Request(0, "cmd=publish_name service=a port=b"),
              HasSubstr("publish_result rc=-1"));
  EXPECT_THAT(node.Request(0, "cmd=lookup_name service=a"), HasSubstr("lookup_result rc=-1"));
  for (const char* line : {"mcmd=spawn", "nprocs=2", "execname=./a", "cmd=get_maxes"})
    EXPECT_EQ(node.Request(0, line), "");
  EXPECT_THAT(node.Request(0, "endcmd"), HasSubstr("spawn_result rc=-1"));
  PmiCore fresh(PmixJobOf({1}, 0));
  const Result<PmiActions> newer = fresh.OnLine(0, "cmd=init pmi_version=2 pmi_subversion=0");
  ASSERT_TRUE(newer.ok());
  EXPECT_THAT(std::get<pmi_action::Reply>(newer->at(0)).line, HasSubstr("rc=-1"));
}

TEST(PmiCoreTest, RejectsInvalidLines) {
  PmiCore fresh(PmixJobOf({1}, 0));
  EXPECT_FALSE(fresh.OnLine(0, "cmd=get_maxes").ok()) << "before the first line";
  Node node({1}, 0);
  for (const std::string& line :
       {std::string(kInit), std::string("cmd=quit"), std::string(), std::string("get"),
        std::string(5000, 'x'), std::string("cmd=get\0key=a", 13)})
    EXPECT_THAT(node.Request(0, line), HasSubstr("refused")) << line.substr(0, 40);
  EXPECT_THAT(node.Request(0, "cmd=put key= value=a"), HasSubstr("rc=-1"));
  EXPECT_THAT(node.Request(0, "cmd=put key=" + std::string(65, 'k') + " value=a"),
              HasSubstr("rc=-1"));
  EXPECT_THAT(node.Request(0, "cmd=put key=k value=" + std::string(1025, 'v')), HasSubstr("rc=-1"));
  node.Request(0, "cmd=barrier_in");
  EXPECT_THAT(node.Request(0, "cmd=get_maxes"), HasSubstr("refused")) << "it waits";
}

TEST(PmiCoreTest, LimitsMemoryForValuesOfARank) {
  Node node({1}, 0);
  const std::string value(1024, 'v');
  std::string reply = "rc=0";
  int puts = 0;
  for (; reply.find("rc=0") != std::string::npos && puts < 100'000; ++puts)
    reply = node.Request(0, "cmd=put key=k value=" + value);
  EXPECT_THAT(reply, HasSubstr("too_much"));
  EXPECT_LE(static_cast<size_t>(puts) * value.size(), PmiCore::kMaxBytes + value.size());
}

}  // namespace
}  // namespace dslaunch::pmi_core_test

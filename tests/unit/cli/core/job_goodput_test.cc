#include "cli/core/job_goodput.h"

#include <gtest/gtest.h>

#include "proto/wire/node_set.h"

namespace dslaunch::job_goodput_test {
namespace {

using enum GoodputBucket;

LaunchPlan Plan(const std::vector<bool>& spares) {
  LaunchPlan plan;
  for (const bool spare : spares) {
    Host node;
    node.slots = 2;
    node.spare = spare;
    plan.nodes.push_back(node);
  }
  std::vector<Host> with_ranks = plan.nodes;
  std::erase_if(with_ranks, [](const Host& node) { return node.spare; });
  plan.ranks = NumberRanksOf(with_ranks);
  return plan;
}

// Returns a report in which both ranks of a node have these times in seconds.
pb::NodeGoodput Seconds(std::initializer_list<std::pair<GoodputBucket, double>> seconds) {
  pb::NodeGoodput goodput;
  for (int rank = 0; rank < 2; ++rank) {
    GoodputTimes times;
    for (const auto& [bucket, s] : seconds) times[bucket] = static_cast<uint64_t>(s * 1e6);
    goodput.add_ranks()->mutable_us()->Assign(times.us.begin(), times.us.end());
  }
  return goodput;
}

class JobGoodputTest : public testing::Test {
 protected:
  void Make(const std::vector<bool>& spares) { job_.emplace(Plan(spares), now_); }
  void PassS(double s) {
    now_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
  }
  void Start(size_t node, uint64_t attempt, const std::vector<uint32_t>& members,
             pb::NodeGoodput goodput) {
    pb::NodeEvent event;
    event.mutable_started()->set_attempt(attempt);
    event.mutable_started()->set_world_size(2 * static_cast<uint32_t>(members.size()));
    *event.mutable_started()->mutable_members() = ToNodeSet(members);
    *event.mutable_started()->mutable_goodput() = std::move(goodput);
    job_->OnEvent(node, event, now_);
  }
  void Report(size_t node, pb::NodeGoodput goodput) {
    pb::NodeEvent event;
    *event.mutable_goodput() = std::move(goodput);
    job_->OnEvent(node, event, now_);
  }
  void Done(size_t node, pb::NodeGoodput goodput) {
    pb::NodeEvent event;
    *event.mutable_done()->mutable_goodput() = std::move(goodput);
    job_->OnEvent(node, event, now_);
  }
  double S(GoodputBucket bucket) const {
    return static_cast<double>(job_->At(now_).times[bucket]) / 1e6;
  }
  void ExpectSum(uint32_t ranks) const {
    const Goodput goodput = job_->At(now_);
    EXPECT_EQ(goodput.ranks, ranks);
    EXPECT_EQ(goodput.times.Sum(), goodput.wall_us * ranks);
  }

  Clock::time_point now_ = Clock::now();
  std::optional<JobGoodput> job_;
};

TEST_F(JobGoodputTest, AddsConnectBeforeAndTeardownAfterReports) {
  Make({false, false});
  PassS(10);
  Start(0, 1, {0, 1}, Seconds({{kRendezvous, 1}, {kStart, 1}}));
  Start(1, 1, {0, 1}, Seconds({{kRendezvous, 1}, {kStart, 1}}));
  PassS(20);
  Done(0, Seconds({{kRendezvous, 1}, {kStart, 1}, {kProductive, 20}}));
  PassS(5);
  Done(1, Seconds({{kRendezvous, 1}, {kStart, 1}, {kProductive, 25}}));
  EXPECT_DOUBLE_EQ(S(kConnect), 4 * 8);
  EXPECT_DOUBLE_EQ(S(kProductive), 2 * 20 + 2 * 25);
  EXPECT_DOUBLE_EQ(S(kTeardown), 2 * 5);
  ExpectSum(4);
}

TEST_F(JobGoodputTest, CountsTimeAfterLastReportOfLostNodeAsLost) {
  Make({false, false});
  Start(0, 1, {0, 1}, Seconds({}));
  Start(1, 1, {0, 1}, Seconds({}));
  PassS(30);
  Report(1, Seconds({{kProductive, 30}}));
  PassS(10);
  Done(0, Seconds({{kProductive, 40}}));
  EXPECT_DOUBLE_EQ(S(kLost), 2 * 10);
  ExpectSum(4);
}

TEST_F(JobGoodputTest, SpareCountsFromItsFirstAttempt) {
  Make({false, false, true});
  Start(0, 1, {0, 1}, Seconds({}));
  Start(1, 1, {0, 1}, Seconds({}));
  PassS(10);
  Report(1, Seconds({{kProductive, 10}}));
  PassS(5);  // node 1 is lost in these seconds
  Start(0, 2, {0, 2}, Seconds({{kProductive, 15}}));
  Start(2, 2, {0, 2}, Seconds({{kRendezvous, 15}}));
  PassS(10);
  Done(0, Seconds({{kProductive, 25}}));
  Done(2, Seconds({{kRendezvous, 15}, {kProductive, 10}}));
  EXPECT_DOUBLE_EQ(S(kProductive), 2 * (25 + 10 + 10));
  EXPECT_DOUBLE_EQ(S(kLost), 2 * 5);
  EXPECT_DOUBLE_EQ(S(kRendezvous), 0);
  ExpectSum(4);
}

TEST_F(JobGoodputTest, RanksWithoutNodeAreLostAfterShrinking) {
  Make({false, false});
  Start(0, 1, {0, 1}, Seconds({}));
  Start(1, 1, {0, 1}, Seconds({}));
  PassS(10);
  Report(1, Seconds({{kProductive, 10}}));
  Start(0, 2, {0}, Seconds({{kProductive, 10}}));
  PassS(10);
  Done(0, Seconds({{kProductive, 20}}));
  EXPECT_DOUBLE_EQ(S(kProductive), 2 * 20 + 2 * 10);
  EXPECT_DOUBLE_EQ(S(kLost), 2 * 10);
  ExpectSum(4);
}

TEST_F(JobGoodputTest, KeepsTimesOfEarlierAgentOfNode) {
  Make({false, false});
  Start(0, 1, {0, 1}, Seconds({}));
  Start(1, 1, {0, 1}, Seconds({}));
  PassS(10);
  Report(0, Seconds({{kProductive, 10}}));
  Report(1, Seconds({{kProductive, 10}}));
  PassS(10);  // node 1 is lost and connected again in these seconds
  Start(0, 2, {0, 1}, Seconds({{kProductive, 12}, {kRendezvous, 8}}));
  Start(1, 2, {0, 1}, Seconds({{kRendezvous, 2}}));
  PassS(10);
  Done(0, Seconds({{kProductive, 22}, {kRendezvous, 8}}));
  Done(1, Seconds({{kRendezvous, 2}, {kProductive, 10}}));
  EXPECT_DOUBLE_EQ(S(kProductive), 2 * 22 + 2 * 20);
  EXPECT_DOUBLE_EQ(S(kLost), 2 * 8);
  ExpectSum(4);
}

TEST_F(JobGoodputTest, JobThatNeverRanOnlyConnected) {
  Make({false, false});
  PassS(7);
  EXPECT_DOUBLE_EQ(S(kConnect), 4 * 7);
  ExpectSum(4);
}

// Neither a node's fast clock nor a node's invalid report may make the sum wrong.
TEST_F(JobGoodputTest, SumIsRightDespiteWrongReports) {
  Make({false});
  Start(0, 1, {0}, Seconds({}));
  PassS(10);
  Done(0, Seconds({{kProductive, 11}, {kSave, 1e9}}));
  ExpectSum(2);
}

}  // namespace
}  // namespace dslaunch::job_goodput_test

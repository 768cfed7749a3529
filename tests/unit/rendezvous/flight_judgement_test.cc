#include "rendezvous/flight_judgement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

namespace dslaunch::flight_judgement_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = FlightVerdict::Kind;

class JudgeFlightTest : public ::testing::Test {
 protected:
  pb::FlightRecord& Rank(uint32_t rank) {
    for (pb::FlightRecord& record : records_) {
      if (record.rank() == rank) return record;
    }
    pb::FlightRecord& record = records_.emplace_back();
    record.set_rank(rank);
    record.set_whole(true);
    return record;
  }

  pb::FlightGroup& Group(uint32_t rank, const std::string& name, uint64_t enqueued,
                         const std::vector<uint32_t>& ranks) {
    pb::FlightGroup& group = *Rank(rank).add_groups();
    group.set_name(name);
    group.set_description(name == "0" ? "default_pg" : "undefined");
    for (const uint32_t member : ranks) group.add_ranks(member);
    group.set_enqueued(enqueued);
    return group;
  }

  static pb::FlightOperation& Waits(pb::FlightGroup& group, uint64_t number,
                                    const std::string& name = "all_reduce",
                                    const std::string& sizes = "[[4]]") {
    pb::FlightOperation& operation = *group.add_operations();
    operation.set_number(number);
    operation.set_name(name);
    operation.set_input_sizes(sizes);
    operation.set_output_sizes(sizes);
    operation.set_dtypes("[Float]");
    operation.set_state("scheduled");
    operation.set_is_p2p(name.find(' ') != std::string::npos);
    pb::StackFrame& inner = *operation.add_frames();
    inner.set_function("all_reduce");
    inner.set_file("/usr/lib/python3/site-packages/torch/distributed/distributed_c10d.py");
    pb::StackFrame& outer = *operation.add_frames();
    outer.set_function("train");
    outer.set_file("/home/u/train.py");
    outer.set_line(92);
    return operation;
  }

  std::optional<FlightVerdict> Judge(uint32_t world_size) {
    std::vector<const pb::FlightRecord*> records;
    for (const pb::FlightRecord& record : records_) records.push_back(&record);
    return JudgeFlight(records, world_size);
  }

  std::deque<pb::FlightRecord> records_;
};

TEST_F(JudgeFlightTest, NamesRankThatHasNotCalledCollective) {
  Waits(Group(0, "0", 4, {0, 1, 2}), 4);
  Group(1, "0", 3, {0, 1, 2});
  Waits(Group(2, "0", 4, {0, 1, 2}), 4);
  const auto verdict = Judge(3);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Kind::kNotEntered);
  EXPECT_TRUE(verdict->sure);
  EXPECT_THAT(verdict->ranks, ElementsAre(1));
  EXPECT_EQ(verdict->what, "all_reduce (collective 4 of group default_pg)");
  EXPECT_THAT(verdict->lines, ElementsAre("ranks 0, 2 wait in all_reduce (collective 4 of group "
                                          "default_pg) at train (train.py:92)"));
}

TEST_F(JudgeFlightTest, BlamesRootOfChainOfWaits) {
  // Rank 0 waits in group tp for rank 1, which waits in group dp for rank 2.
  Waits(Group(0, "tp", 7, {0, 1}), 7);
  Group(1, "tp", 6, {0, 1});
  Waits(Group(1, "dp", 2, {1, 2}), 2);
  Group(2, "dp", 1, {1, 2});
  const auto verdict = Judge(3);
  ASSERT_TRUE(verdict);
  EXPECT_THAT(verdict->ranks, ElementsAre(2));
  EXPECT_THAT(verdict->what, HasSubstr("collective 2 of group dp"));
}

TEST_F(JudgeFlightTest, ReportsCrossedGroupsAsOtherOrder) {
  Waits(Group(0, "tp", 1, {0, 1}), 1);
  Waits(Group(1, "dp", 1, {0, 1}), 1);
  const auto verdict = Judge(2);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Kind::kOtherOrder);
  EXPECT_THAT(verdict->ranks, ElementsAre(0, 1));
  EXPECT_FALSE(verdict->sure);
  EXPECT_EQ(verdict->lines.size(), 2u);
}

TEST_F(JudgeFlightTest, NamesMinorityWithOtherOperation) {
  Waits(Group(0, "0", 3, {0, 1, 2}), 3);
  Waits(Group(1, "0", 3, {0, 1, 2}), 3, "broadcast");
  Waits(Group(2, "0", 3, {0, 1, 2}), 3);
  const auto verdict = Judge(3);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Kind::kOtherOperation);
  EXPECT_THAT(verdict->ranks, ElementsAre(1));
  EXPECT_EQ(verdict->what, "the operations of collective 3 of group default_pg differ");
  EXPECT_THAT(verdict->lines[0], HasSubstr("rank 1 called broadcast [[4]]"));
}

TEST_F(JudgeFlightTest, NamesNoneOfTwoRanksWithOtherSizes) {
  Waits(Group(0, "0", 3, {0, 1}), 3);
  Waits(Group(1, "0", 3, {0, 1}), 3, "all_reduce", "[[8]]");
  const auto verdict = Judge(2);
  ASSERT_TRUE(verdict);
  EXPECT_THAT(verdict->ranks, IsEmpty());
  EXPECT_THAT(verdict->lines, ElementsAre(HasSubstr("[[4]]"), HasSubstr("[[8]]")));
}

TEST_F(JudgeFlightTest, AcceptsOtherSizesOfUnevenExchange) {
  Waits(Group(0, "0", 3, {0, 1}), 3, "all_to_all", "[[4]]");
  Waits(Group(1, "0", 3, {0, 1}), 3, "all_to_all", "[[8]]");
  EXPECT_FALSE(Judge(2));
}

TEST_F(JudgeFlightTest, IsNotSureWithoutRecordOfMember) {
  Waits(Group(0, "0", 4, {0, 1, 2}), 4);
  Group(1, "0", 3, {0, 1, 2});
  Rank(2).set_trouble("its process wrote no dump");
  const auto verdict = Judge(3);
  ASSERT_TRUE(verdict);
  EXPECT_THAT(verdict->ranks, ElementsAre(1));
  EXPECT_FALSE(verdict->sure);
}

TEST_F(JudgeFlightTest, IgnoresGroupThatRecorderMayHaveDropped) {
  Waits(Group(0, "tp", 4, {0, 1}), 4);
  Rank(1).set_whole(false);
  EXPECT_FALSE(Judge(2));
  Rank(1).set_whole(true);
  EXPECT_TRUE(Judge(2));
}

TEST_F(JudgeFlightTest, NamesSenderThatReceiverWaitsFor) {
  pb::FlightGroup& receiver = Group(0, "0", 2, {0, 1});
  Waits(receiver, 2, "recv 0<-1");
  Group(1, "0", 2, {0, 1});
  const auto verdict = Judge(2);
  ASSERT_TRUE(verdict);
  EXPECT_THAT(verdict->ranks, ElementsAre(1));
  EXPECT_EQ(verdict->what, "recv 0<-1 (group default_pg)");
}

TEST_F(JudgeFlightTest, AcceptsReceiverWithSender) {
  Waits(Group(0, "0", 2, {0, 1}), 2, "recv 0<-1");
  Waits(Group(1, "0", 2, {0, 1}), 2, "send 1->0");
  EXPECT_FALSE(Judge(2));
}

TEST_F(JudgeFlightTest, NamesRankWhoseDeviceHasNotBegun) {
  Waits(Group(0, "0", 3, {0, 1}), 3).set_state("started");
  Waits(Group(1, "0", 3, {0, 1}), 3);
  const auto verdict = Judge(2);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Kind::kNotStarted);
  EXPECT_THAT(verdict->ranks, ElementsAre(1));
  EXPECT_FALSE(verdict->sure);
}

TEST_F(JudgeFlightTest, ReturnsNothingIfAllWaitInOneExchange) {
  for (const uint32_t rank : {0u, 1u}) Waits(Group(rank, "0", 3, {0, 1}), 3);
  EXPECT_FALSE(Judge(2));
  EXPECT_FALSE(JudgeFlight({}, 2));
}

TEST_F(JudgeFlightTest, JudgesThousandsOfRanksInBoundedTime) {
  constexpr uint32_t kRanks = 4096;
  std::vector<uint32_t> all;
  for (uint32_t rank = 0; rank < kRanks; ++rank) all.push_back(rank);
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    pb::FlightRecord& record = records_.emplace_back();
    record.set_rank(rank);
    pb::FlightGroup& group = *record.add_groups();
    group.set_name("0");
    group.set_description("default_pg");
    group.set_enqueued(rank == 77 ? 3 : 4);
    if (rank != 77) Waits(group, 4);
  }
  const auto verdict = Judge(kRanks);
  ASSERT_TRUE(verdict);
  EXPECT_THAT(verdict->ranks, ElementsAre(77));
}

}  // namespace
}  // namespace dslaunch::flight_judgement_test

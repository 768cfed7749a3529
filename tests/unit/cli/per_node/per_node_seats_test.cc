#include "cli/per_node/per_node_seats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch {
namespace {

using testing::HasSubstr;
using Verdict = Seats::Decision::Verdict;

const Clock::time_point kStart = Clock::time_point(std::chrono::hours(1));

pb::SeatRequest Request(uint32_t min_nodes, uint32_t max_nodes) {
  pb::SeatRequest request;
  request.set_magic(kPerNodeMagic);
  request.set_version("1.0");
  request.set_job("none");
  request.set_host_name("host");
  request.set_min_nodes(min_nodes);
  request.set_max_nodes(max_nodes);
  request.set_slots(2);
  request.mutable_program()->set_name("train.py");
  request.mutable_program()->set_form("f");
  request.mutable_program()->set_shown("train.py --lr 0.1");
  return request;
}

pb::SeatRequest Ranked(uint32_t rank, uint32_t min_nodes = 3, uint32_t max_nodes = 3) {
  pb::SeatRequest request = Request(min_nodes, max_nodes);
  request.set_node_rank(rank);
  return request;
}

SeatsOptions Options(uint32_t min_nodes = 3, uint32_t max_nodes = 3) {
  SeatsOptions options;
  options.own = Request(min_nodes, max_nodes);
  options.own.set_host_name("zero");
  for (uint32_t i = 0; i < max_nodes; ++i) options.names.push_back("node" + std::to_string(i));
  return options;
}

// Why `request` is refused by a job of three nodes; empty: it is not.
std::string Refusal(const pb::SeatRequest& request) {
  Seats seats(Options(), kStart);
  const std::optional<Error> refused = seats.Admit(1, request, "h (1.2.3.4)", kStart);
  return refused ? refused->message : "";
}

TEST(SeatsTest, StartsWhenAllAreHere) {
  Seats seats(Options(), kStart);
  EXPECT_EQ(seats.Decide(kStart).verdict, Verdict::kWait);
  EXPECT_FALSE(seats.Admit(7, Ranked(2), "a", kStart));
  EXPECT_EQ(seats.Decide(kStart).verdict, Verdict::kWait);
  EXPECT_FALSE(seats.Admit(9, Ranked(1), "b", kStart));
  EXPECT_EQ(seats.Decide(kStart).verdict, Verdict::kStart);
  seats.Start();
  EXPECT_EQ(seats.GuestAt(1), 9u);
  EXPECT_EQ(seats.GuestAt(2), 7u);
}

TEST(SeatsTest, WithoutRanksInTheOrderInWhichTheyCame) {
  Seats seats(Options(), kStart);
  pb::SeatRequest big = Request(3, 3);
  big.set_slots(8);
  EXPECT_FALSE(seats.Admit(1, big, "a", kStart));
  EXPECT_FALSE(seats.Admit(2, Ranked(1), "b", kStart));
  seats.Start();
  EXPECT_EQ(seats.SeatOf(1), 2u);
  EXPECT_EQ(seats.SeatOf(2), 1u);
  EXPECT_EQ(seats.SlotsOf(0), 2);
  EXPECT_EQ(seats.SlotsOf(1), 2);
  EXPECT_EQ(seats.SlotsOf(2), 8);
}

TEST(SeatsTest, ASeatIsFreeAgainWhenItsNodeLeaves) {
  Seats seats(Options(), kStart);
  EXPECT_FALSE(seats.Admit(1, Ranked(1), "a", kStart));
  EXPECT_TRUE(seats.Admit(2, Ranked(1), "b", kStart));
  seats.Leave(1);
  EXPECT_FALSE(seats.Admit(2, Ranked(1), "b", kStart));
}

TEST(SeatsTest, GivesUpWhenTooFewCame) {
  Seats seats(Options(), kStart);
  EXPECT_FALSE(seats.Admit(1, Ranked(2), "a", kStart));
  const Seats::Decision waits = seats.Decide(kStart);
  EXPECT_EQ(waits.verdict, Verdict::kWait);
  EXPECT_EQ(waits.wake, kStart + milliseconds(600'000));
  const Seats::Decision over = seats.Decide(waits.wake);
  EXPECT_EQ(over.verdict, Verdict::kGiveUp);
  EXPECT_THAT(over.reason, HasSubstr("only 2 of 3 nodes are here after 600 s, missing: node1"));
}

TEST(SeatsTest, OnceTheLeastNumberIsThereALastCallFollows) {
  Seats seats(Options(2, 4), kStart);
  const Clock::time_point later = kStart + std::chrono::minutes(2);
  EXPECT_FALSE(seats.Admit(1, Request(2, 4), "a", later));
  const Seats::Decision waits = seats.Decide(later);
  EXPECT_EQ(waits.verdict, Verdict::kWait);
  EXPECT_EQ(waits.wake, later + milliseconds(30'000));
  seats.Leave(1);
  EXPECT_EQ(seats.Decide(waits.wake).verdict, Verdict::kWait);
  EXPECT_FALSE(seats.Admit(2, Request(2, 4), "a", waits.wake));
  EXPECT_EQ(seats.Decide(waits.wake + milliseconds(30'000)).verdict, Verdict::kStart);
}

TEST(SeatsTest, OneNodeCanBeTheLeastNumber) {
  Seats seats(Options(1, 2), kStart);
  EXPECT_EQ(seats.Decide(kStart).verdict, Verdict::kWait);
  EXPECT_EQ(seats.Decide(kStart + milliseconds(30'000)).verdict, Verdict::kStart);
}

TEST(SeatsTest, RefusesAnotherJob) {
  EXPECT_EQ(Refusal(Ranked(1)), "");
  pb::SeatRequest other = Ranked(1);
  other.set_version("1.1");
  EXPECT_THAT(Refusal(other), HasSubstr("node 0 runs dslaunch 1.0, h (1.2.3.4) runs dslaunch 1.1"));
  other = Ranked(1);
  other.set_job("b");
  EXPECT_THAT(Refusal(other), HasSubstr("--rdzv_id is 'none' on node 0 and 'b' on h"));
  EXPECT_THAT(Refusal(Ranked(1, 2, 3)), HasSubstr("--nnodes is 3 on node 0 and 2:3 on h"));
  other = Ranked(1);
  other.mutable_program()->set_name("eval.py");
  other.mutable_program()->set_shown("eval.py --all");
  EXPECT_THAT(Refusal(other), HasSubstr("runs another command: eval.py --all;"));
  other = Ranked(1);
  other.mutable_program()->set_form("g");
  EXPECT_THAT(Refusal(other), HasSubstr("is started in another way"));
}

TEST(SeatsTest, RefusesWhoHasNoPlace) {
  EXPECT_THAT(Refusal(Ranked(0)), HasSubstr("--node_rank 0, which node 0's command has on zero"));
  EXPECT_THAT(Refusal(Ranked(3)), HasSubstr("--node_rank 3, but the job has 3 nodes, 0 to 2"));
  Seats seats(Options(), kStart);
  EXPECT_FALSE(seats.Admit(1, Ranked(1), "a", kStart));
  EXPECT_THAT(seats.Admit(2, Ranked(1), "b", kStart)->message,
              HasSubstr("node 1 is here already, from a; b has the same --node_rank"));
  EXPECT_FALSE(seats.Admit(3, Request(3, 3), "c", kStart));
  const std::optional<Error> full = seats.Admit(4, Request(3, 3), "d", kStart);
  EXPECT_THAT(full->message, HasSubstr("all 3 nodes are here already, d is one too many"));
  EXPECT_EQ(full->code, ExitCode::kUnavailable);
}

TEST(SeatsTest, AHostfileSaysHowManySlotsANodeHas) {
  SeatsOptions options = Options();
  options.names = {"a", "b", "c"};
  options.slots = {2, 4, 2};
  Seats seats(options, kStart);
  EXPECT_THAT(seats.Admit(1, Ranked(1), "h", kStart)->message,
              HasSubstr("h has 2 slots for b, node 0 knows it with 4"));
  EXPECT_FALSE(seats.Admit(2, Ranked(2), "h", kStart));
}

TEST(SeatsTest, LateOnlyWhereTheJobTakesIt) {
  for (const bool takes_late : {false, true}) {
    SeatsOptions options = Options(1, 3);
    options.takes_late = takes_late;
    Seats seats(options, kStart);
    EXPECT_FALSE(seats.Admit(1, Ranked(2, 1, 3), "a", kStart));
    seats.Start();
    EXPECT_EQ(seats.SlotsOf(1), 2);
    pb::SeatRequest late = Request(1, 3);
    EXPECT_EQ(seats.Admit(2, late, "b", kStart).has_value(), !takes_late);
    if (!takes_late) continue;
    EXPECT_EQ(seats.SeatOf(2), 1u);
    seats.Leave(2);
    late.set_slots(3);
    EXPECT_TRUE(seats.Admit(3, late, "c", kStart));
    late.set_node_rank(1);
    EXPECT_THAT(seats.Admit(4, late, "c", kStart)->message,
                HasSubstr("a node that comes later brings as many"));
  }
}

}  // namespace
}  // namespace dslaunch

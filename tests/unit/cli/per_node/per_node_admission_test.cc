#include "cli/per_node/per_node_admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::per_node_admission_test {
namespace {

using testing::HasSubstr;
using Verdict = Admission::Decision::Verdict;

const Clock::time_point kStart = Clock::time_point(std::chrono::hours(1));

pb::AdmissionRequest Request(uint32_t min_nodes, uint32_t max_nodes) {
  pb::AdmissionRequest request;
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

pb::AdmissionRequest Ranked(uint32_t rank, uint32_t min_nodes = 3, uint32_t max_nodes = 3) {
  pb::AdmissionRequest request = Request(min_nodes, max_nodes);
  request.set_node_rank(rank);
  return request;
}

AdmissionOptions Options(uint32_t min_nodes = 3, uint32_t max_nodes = 3) {
  AdmissionOptions options;
  options.own = Request(min_nodes, max_nodes);
  options.own.set_host_name("zero");
  for (uint32_t i = 0; i < max_nodes; ++i) options.names.push_back("node" + std::to_string(i));
  return options;
}

// Returns the reason why a job of three nodes refuses `request`; "" if the job admits it.
std::string Refusal(const pb::AdmissionRequest& request) {
  Admission admission(Options(), kStart);
  const std::optional<Error> refused = admission.Admit(1, request, "h (1.2.3.4)", kStart);
  return refused ? refused->message : "";
}

TEST(AdmissionTest, StartsWhenAllNodesJoined) {
  Admission admission(Options(), kStart);
  EXPECT_EQ(admission.Decide(kStart).verdict, Verdict::kWait);
  EXPECT_FALSE(admission.Admit(7, Ranked(2), "a", kStart));
  EXPECT_EQ(admission.Decide(kStart).verdict, Verdict::kWait);
  EXPECT_FALSE(admission.Admit(9, Ranked(1), "b", kStart));
  EXPECT_EQ(admission.Decide(kStart).verdict, Verdict::kStart);
  admission.Start();
  EXPECT_EQ(admission.PeerAt(1), 9u);
  EXPECT_EQ(admission.PeerAt(2), 7u);
}

TEST(AdmissionTest, NumbersNodesWithoutRankInOrderOfJoining) {
  Admission admission(Options(), kStart);
  pb::AdmissionRequest big = Request(3, 3);
  big.set_slots(8);
  EXPECT_FALSE(admission.Admit(1, big, "a", kStart));
  EXPECT_FALSE(admission.Admit(2, Ranked(1), "b", kStart));
  admission.Start();
  EXPECT_EQ(admission.PlaceOf(1), 2u);
  EXPECT_EQ(admission.PlaceOf(2), 1u);
  EXPECT_EQ(admission.SlotsOf(0), 2);
  EXPECT_EQ(admission.SlotsOf(1), 2);
  EXPECT_EQ(admission.SlotsOf(2), 8);
}

TEST(AdmissionTest, FreesPlaceWhenNodeLeaves) {
  Admission admission(Options(), kStart);
  EXPECT_FALSE(admission.Admit(1, Ranked(1), "a", kStart));
  EXPECT_TRUE(admission.Admit(2, Ranked(1), "b", kStart));
  admission.Leave(1);
  EXPECT_FALSE(admission.Admit(2, Ranked(1), "b", kStart));
}

TEST(AdmissionTest, GivesUpIfTooFewJoin) {
  Admission admission(Options(), kStart);
  EXPECT_FALSE(admission.Admit(1, Ranked(2), "a", kStart));
  const Admission::Decision waits = admission.Decide(kStart);
  EXPECT_EQ(waits.verdict, Verdict::kWait);
  EXPECT_EQ(waits.wake, kStart + milliseconds(600'000));
  const Admission::Decision over = admission.Decide(waits.wake);
  EXPECT_EQ(over.verdict, Verdict::kGiveUp);
  EXPECT_THAT(over.reason, HasSubstr("only 2 of 3 nodes have joined after 600 s, missing: node1"));
}

TEST(AdmissionTest, WaitsForLastCallOnceMinimumJoined) {
  Admission admission(Options(2, 4), kStart);
  const Clock::time_point later = kStart + std::chrono::minutes(2);
  EXPECT_FALSE(admission.Admit(1, Request(2, 4), "a", later));
  const Admission::Decision waits = admission.Decide(later);
  EXPECT_EQ(waits.verdict, Verdict::kWait);
  EXPECT_EQ(waits.wake, later + milliseconds(30'000));
  admission.Leave(1);
  EXPECT_EQ(admission.Decide(waits.wake).verdict, Verdict::kWait);
  EXPECT_FALSE(admission.Admit(2, Request(2, 4), "a", waits.wake));
  EXPECT_EQ(admission.Decide(waits.wake + milliseconds(30'000)).verdict, Verdict::kStart);
}

TEST(AdmissionTest, AcceptsMinimumOfOneNode) {
  Admission admission(Options(1, 2), kStart);
  EXPECT_EQ(admission.Decide(kStart).verdict, Verdict::kWait);
  EXPECT_EQ(admission.Decide(kStart + milliseconds(30'000)).verdict, Verdict::kStart);
}

TEST(AdmissionTest, RefusesAnotherJob) {
  EXPECT_EQ(Refusal(Ranked(1)), "");
  pb::AdmissionRequest other = Ranked(1);
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

TEST(AdmissionTest, RefusesNodesWithoutPlace) {
  EXPECT_THAT(Refusal(Ranked(0)), HasSubstr("--node_rank 0, which node 0's command has on zero"));
  EXPECT_THAT(Refusal(Ranked(3)), HasSubstr("--node_rank 3, but the job has 3 nodes, 0 to 2"));
  Admission admission(Options(), kStart);
  EXPECT_FALSE(admission.Admit(1, Ranked(1), "a", kStart));
  EXPECT_THAT(admission.Admit(2, Ranked(1), "b", kStart)->message,
              HasSubstr("node 1 has joined already, from a; b has the same --node_rank"));
  EXPECT_FALSE(admission.Admit(3, Request(3, 3), "c", kStart));
  const std::optional<Error> full = admission.Admit(4, Request(3, 3), "d", kStart);
  EXPECT_THAT(full->message, HasSubstr("all 3 nodes have joined already, d is one too many"));
  EXPECT_EQ(full->code, ExitCode::kUnavailable);
}

TEST(AdmissionTest, RefusesSlotsThatDifferFromHostfile) {
  AdmissionOptions options = Options();
  options.names = {"a", "b", "c"};
  options.slots = {2, 4, 2};
  Admission admission(options, kStart);
  EXPECT_THAT(admission.Admit(1, Ranked(1), "h", kStart)->message,
              HasSubstr("h has 2 slots for b, node 0 expects 4"));
  EXPECT_FALSE(admission.Admit(2, Ranked(2), "h", kStart));
}

TEST(AdmissionTest, AdmitsLateNodesOnlyIfJobAllows) {
  for (const bool takes_late : {false, true}) {
    AdmissionOptions options = Options(1, 3);
    options.takes_late = takes_late;
    Admission admission(options, kStart);
    EXPECT_FALSE(admission.Admit(1, Ranked(2, 1, 3), "a", kStart));
    admission.Start();
    EXPECT_EQ(admission.SlotsOf(1), 2);
    pb::AdmissionRequest late = Request(1, 3);
    EXPECT_EQ(admission.Admit(2, late, "b", kStart).has_value(), !takes_late);
    if (!takes_late) continue;
    EXPECT_EQ(admission.PlaceOf(2), 1u);
    admission.Leave(2);
    late.set_slots(3);
    EXPECT_TRUE(admission.Admit(3, late, "c", kStart));
    late.set_node_rank(1);
    EXPECT_THAT(admission.Admit(4, late, "c", kStart)->message,
                HasSubstr("a node that joins later must have as many"));
  }
}

}  // namespace
}  // namespace dslaunch::per_node_admission_test

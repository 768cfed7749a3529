#include "rendezvous/first_cause.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "proto/wire/cause.h"
#include "tests/support/random_seed.h"

namespace dslaunch::first_cause_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Clock::time_point At(int64_t ms) { return Clock::time_point(milliseconds(ms)); }

pb::Cause Exit(uint32_t node, int rank, bool victim = false) {
  pb::Cause cause = MakeCause(pb::Cause::WORKER_EXIT, node, ExitCode::kInternal, "");
  cause.set_rank(rank);
  cause.set_victim(victim);
  return cause;
}

pb::Cause Lost(uint32_t node) {
  return MakeCause(pb::Cause::NODE_LOST, node, ExitCode::kUnavailable, "");
}

pb::WorkerFailed Failed(uint32_t node, int rank, int age_ms, int rtt_ms, bool victim = false) {
  pb::WorkerFailed failed;
  *failed.mutable_cause() = Exit(node, rank, victim);
  failed.set_age_us(static_cast<uint64_t>(age_ms) * 1000);
  failed.set_rtt_us(static_cast<uint64_t>(rtt_ms) * 1000);
  return failed;
}

TEST(FirstCauseTest, SingleFailureIsTheCause) {
  const FirstCause first = ChooseFirstCause({ReportOf(Failed(1, 3, 0, 10), 1, At(0))});
  EXPECT_EQ(first.cause.rank(), 3);
  EXPECT_THAT(first.victims, IsEmpty());
  EXPECT_EQ(first.reason, "nothing else failed");
}

TEST(FirstCauseTest, PrefersEarlierFailureReportedLater) {
  // Rank 3's agent sent its report 500 ms after the failure.
  const FirstCause first = ChooseFirstCause(
      {ReportOf(Failed(0, 0, 0, 10), 0, At(1000)), ReportOf(Failed(1, 3, 500, 10), 1, At(1100))});
  EXPECT_EQ(first.cause.rank(), 3);
  EXPECT_EQ(first.reason, "rank 3 failed before the others");
}

FailureReport Victim(uint32_t node, pb::Cause::PeerFault fault, int64_t at_ms) {
  pb::WorkerFailed failed = Failed(node, static_cast<int>(node), 0, 10, /*victim=*/true);
  failed.mutable_cause()->set_peer_fault(fault);
  return ReportOf(failed, node, At(at_ms));
}

TEST(FirstCauseTest, UnreachableAddressIsTheCauseItself) {
  const FirstCause first =
      ChooseFirstCause({Victim(0, pb::Cause::LATE, 1000), Victim(1, pb::Cause::UNREACHABLE, 2000),
                        Victim(2, pb::Cause::UNREACHABLE, 3000)});
  EXPECT_EQ(first.cause.rank(), 1);
  EXPECT_FALSE(first.cause.victim());
  EXPECT_THAT(first.victims, ElementsAre(0));
  EXPECT_EQ(first.reason, "rank 1 could not connect, and no rank failed by itself");
}

TEST(FirstCauseTest, UnreachablePeerIsAnEffectOfItsOwnFailure) {
  const FirstCause first = ChooseFirstCause(
      {Victim(1, pb::Cause::UNREACHABLE, 1000), ReportOf(Failed(0, 0, 0, 10), 0, At(2000))});
  EXPECT_EQ(first.cause.rank(), 0);
  EXPECT_THAT(first.victims, ElementsAre(1));
}

TEST(FirstCauseTest, TimeoutExplainsConnectionsThatEndedBecauseOfIt) {
  const std::vector<FailureReport> reports = {Victim(2, pb::Cause::GONE, 1000),
                                              Victim(0, pb::Cause::LATE, 1020)};
  const FirstCause first = ChooseFirstCause(reports);
  EXPECT_EQ(first.cause.rank(), 0);
  EXPECT_TRUE(first.cause.victim());
  EXPECT_THAT(first.victims, ElementsAre(2));
}

TEST(FirstCauseTest, RunningRanksMatterAfterTimeoutsOnly) {
  EXPECT_TRUE(AreRunningRanksOfInterest(
      {Victim(0, pb::Cause::LATE, 1000), Victim(1, pb::Cause::GONE, 1000)}));
  EXPECT_TRUE(AreRunningRanksOfInterest({Victim(0, pb::Cause::UNREACHABLE, 1000)}));
  EXPECT_FALSE(AreRunningRanksOfInterest({Victim(1, pb::Cause::GONE, 1000)}));
  EXPECT_FALSE(AreRunningRanksOfInterest(
      {Victim(0, pb::Cause::LATE, 1000), ReportOf(Failed(1, 1, 0, 10), 1, At(1000))}));
}

TEST(FirstCauseTest, PrefersFirstReportIfOrderIsUnknown) {
  const FirstCause first = ChooseFirstCause(
      {ReportOf(Failed(0, 0, 0, 200), 0, At(1000)), ReportOf(Failed(1, 3, 150, 200), 1, At(1100))});
  EXPECT_EQ(first.cause.rank(), 0);
  EXPECT_THAT(first.reason, HasSubstr("rank 0 was reported first"));
  // With an unknown round trip, reports within a second of each other have no known order.
  const FirstCause unknown = ChooseFirstCause(
      {ReportOf(Failed(0, 0, 0, 0), 0, At(1000)), ReportOf(Failed(1, 3, 500, 0), 1, At(1100))});
  EXPECT_EQ(unknown.cause.rank(), 0);
}

TEST(FirstCauseTest, PrefersLaterFailureOverEarlierVictims) {
  const FirstCause first =
      ChooseFirstCause({ReportOf(Failed(0, 1, 0, 10, /*victim=*/true), 0, At(0)),
                        ReportOf(Failed(0, 0, 0, 10, /*victim=*/true), 0, At(1)),
                        ReportOf(Failed(1, 3, 0, 10), 1, At(500))});
  EXPECT_EQ(first.cause.rank(), 3);
  EXPECT_THAT(first.victims, ElementsAre(0u, 1u));
  EXPECT_EQ(first.reason, "the others look like its victims");
}

TEST(FirstCauseTest, PrefersEarliestAmongVictimsOnly) {
  const FirstCause first =
      ChooseFirstCause({ReportOf(Failed(0, 1, 0, 10, /*victim=*/true), 0, At(100)),
                        ReportOf(Failed(1, 2, 90, 10, /*victim=*/true), 1, At(110))});
  EXPECT_EQ(first.cause.rank(), 2);
  EXPECT_THAT(first.victims, ElementsAre(1u));
  EXPECT_THAT(first.reason, HasSubstr("all look like victims"));
}

TEST(FirstCauseTest, LostNodeExplainsVictimsReportedEarlier) {
  const FirstCause first =
      ChooseFirstCause({ReportOf(Failed(0, 0, 0, 10, /*victim=*/true), 0, At(1200)),
                        ReportSince(Lost(1), 1, At(1000), At(7000))});
  EXPECT_EQ(first.cause.kind(), pb::Cause::NODE_LOST);
  EXPECT_THAT(first.victims, ElementsAre(0u));
}

TEST(FirstCauseTest, UsesTimeANodeWasLastSeen) {
  // The node was lost while the job was being stopped because of rank 0.
  const FirstCause first = ChooseFirstCause(
      {ReportOf(Failed(0, 0, 0, 10), 0, At(500)), ReportSince(Lost(1), 1, At(1000), At(7000))});
  EXPECT_EQ(first.cause.rank(), 0);
  EXPECT_EQ(first.reason, "rank 0 failed before the others");
  // Conversely, a rank that fails long after the loss was not the first cause.
  const FirstCause lost = ChooseFirstCause(
      {ReportSince(Lost(1), 1, At(1000), At(1010)), ReportOf(Failed(0, 0, 0, 10), 0, At(1500))});
  EXPECT_EQ(lost.cause.kind(), pb::Cause::NODE_LOST);
}

TEST(FirstCauseTest, UsesTheOrderOfANodesReports) {
  // Ranks 0 and 3 have no known order. But node 1 reported rank 2 before rank 3, and rank 0 failed
  // before rank 2.
  const FirstCause first = ChooseFirstCause({ReportOf(Failed(1, 2, 0, 10), 1, At(500)),
                                             ReportOf(Failed(1, 3, 0, 900), 1, At(501)),
                                             ReportOf(Failed(0, 0, 500, 10), 0, At(600))});
  EXPECT_EQ(first.cause.rank(), 0);
}

// Failures happen at random times on nodes whose messages are delayed randomly and arrive in any
// order.
TEST(FirstCauseTest, NeverContradictsAKnownOrder) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE("DSLAUNCH_TEST_SEED=" + std::to_string(seed));
  Random random(seed);
  int ordered = 0;
  for (int history = 0; history < 20'000; ++history) {
    struct Failure {
      int64_t at;
      int64_t arrival;
      FailureReport report;
    };
    std::vector<Failure> failures;
    const int count = static_cast<int>(random.Between(2, 6));
    const int64_t spread = random.Between(1, 2'000);
    for (int rank = 0; rank < count; ++rank) {
      // One rank per node, so there is no order within a node.
      const auto node = static_cast<uint32_t>(rank);
      const int64_t at = random.Between(10'000, 10'000 + spread);
      const int64_t rtt = random.Between(1, 300);
      if (random.OneIn(5)) {  // the node becomes silent
        const int64_t noticed = at + random.Between(0, 6'000);
        failures.push_back(
            {at, noticed,
             ReportSince(Lost(node), node, At(at - random.Between(0, 1'000)), At(noticed))});
      } else {
        const auto age = static_cast<int>(random.Between(0, 1'000));
        const int64_t arrival = at + age + random.Between(0, rtt);
        failures.push_back(
            {at, arrival,
             ReportOf(Failed(node, rank, age, static_cast<int>(rtt)), node, At(arrival))});
      }
    }
    // Any rank that failed after the true first cause may look like a victim of that cause.
    const auto truth = std::min_element(failures.begin(), failures.end(),
                                        [](auto& a, auto& b) { return a.at < b.at; });
    const uint32_t true_node = truth->report.node;
    const Clock::time_point true_latest = truth->report.latest;
    bool known = true;
    for (Failure& failure : failures) {
      if (failure.report.node == true_node) continue;
      if (random.OneIn(3)) failure.report.cause.set_victim(true);
      if (!failure.report.cause.victim()) known = known && true_latest < failure.report.earliest;
    }
    std::sort(failures.begin(), failures.end(),
              [](auto& a, auto& b) { return a.arrival < b.arrival; });
    std::vector<FailureReport> reports;
    for (const Failure& failure : failures) reports.push_back(failure.report);

    const FirstCause first = ChooseFirstCause(reports);
    EXPECT_FALSE(first.reason.empty());
    if (known) {
      ++ordered;
      ASSERT_EQ(first.cause.node_index(), true_node) << "history " << history;
    }
    for (const FailureReport& report : reports) {
      if (report.cause.victim()) continue;
      const auto chosen = std::find_if(reports.begin(), reports.end(),
                                       [&](auto& r) { return r.node == first.cause.node_index(); });
      ASSERT_GE(report.latest, chosen->earliest) << "history " << history << ": one was before it";
    }
  }
  EXPECT_GT(ordered, 1'000);  // otherwise the test would prove nothing
}

}  // namespace
}  // namespace dslaunch::first_cause_test

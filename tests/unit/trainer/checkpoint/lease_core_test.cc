#include "trainer/checkpoint/lease_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::lease_core_test {
namespace {

using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Kind = LeaseDecision::Kind;

constexpr seconds kDeadAfter{60};
const Clock::time_point kStart{};

LeaseOwner Owner(const std::string& token, const std::string& job = "", int64_t attempt = 1) {
  LeaseOwner owner;
  owner.token = token;
  owner.job_id = job;
  owner.attempt = attempt;
  owner.host = "node3";
  owner.machine = "boot pid:[1]";
  owner.process = {4242, 99};
  return owner;
}

LeaseOwner BatchOwner(const std::string& token, const std::string& job, int64_t requeues) {
  LeaseOwner owner = Owner(token);
  owner.batch_job = job;
  owner.requeues = requeues;
  return owner;
}

std::string Text(const LeaseOwner& owner, int64_t renewals = 0) {
  return FormatLease({.owner = owner, .renewals = renewals, .renewed_ms = 1'700'000'000'000});
}

TEST(LeaseTextTest, RoundTripsWithConstantLength) {
  LeaseOwner owner = BatchOwner("t", "slurm 12", 3);
  owner.job_id = "4f2a-01";
  owner.attempt = 7;
  const std::string text = Text(owner, 1);
  EXPECT_EQ(text.size(), kLeaseBytes);
  EXPECT_EQ(Text(owner, INT64_MAX).size(), kLeaseBytes);
  const auto read = ParseLease(text);
  ASSERT_TRUE(read);
  EXPECT_EQ(FormatLease(*read), text);
  EXPECT_EQ(read->owner.process, owner.process);
  EXPECT_EQ(read->owner.attempt, 7);
  EXPECT_EQ(read->owner.requeues, 3);
  EXPECT_EQ(Describe(read->owner), "job 4f2a-01 on node3 (pid 4242)");
}

TEST(LeaseTextTest, StoresWhetherItWasReleased) {
  const HeldLease held = {.owner = Owner("t", "job")};
  HeldLease released = held;
  released.released = true;
  EXPECT_EQ(FormatLease(released).size(), kLeaseBytes);
  EXPECT_TRUE(ParseLease(FormatLease(released)).value().released);
  EXPECT_FALSE(ParseLease(FormatLease(held)).value().released);
  std::string older = FormatLease(held);
  const std::string key = "\"released\"";
  older.replace(older.find(key), key.size(), "\"whatever\"");
  EXPECT_FALSE(ParseLease(older).value().released) << "older leases lack the key";
}

TEST(LeaseTextTest, BoundsAndSanitizesNames) {
  LeaseOwner owner = Owner(std::string(9000, '"'), std::string(9000, '\\'));
  owner.host = "a\x1b[31mb\n" + std::string(9000, '\x01');
  owner.batch_job = std::string(9000, '\n');
  owner.machine = std::string(9000, '"');
  const std::string text = Text(owner);
  EXPECT_EQ(text.size(), kLeaseBytes);
  const auto read = ParseLease(text);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->owner.host.find_first_of("\x1b\n\x01"), std::string::npos);
}

TEST(LeaseTextTest, RejectsInvalidText) {
  for (const std::string text :
       {"", " ", "{}", "[]", "null", "{\"format\":1}", "{\"format\":\"dslaunch lease 1\"}"}) {
    EXPECT_FALSE(ParseLease(text)) << text;
  }
  const std::string good = Text(Owner("t", "job"));
  for (const auto& [what, instead] :
       {std::pair("4242", "-1"), {"4242", "99999999999"}, {"4242", "1.5"}, {"\"t\"", "[]"}}) {
    std::string bad = good;
    bad.replace(bad.find(what), std::string(what).size(), instead);
    EXPECT_FALSE(ParseLease(bad)) << instead;
  }
}

TEST(LeaseWatchTest, TakesFreeFolder) {
  LeaseWatch watch(Owner("me"), kDeadAfter);
  EXPECT_EQ(watch.OnLook(std::nullopt, OwnerProcess::kUnknown, kStart).kind, Kind::kTake);
}

TEST(LeaseWatchTest, RefusesLeaseOfLiveOwnerAndTakesLeaseOfDeadOwner) {
  LeaseWatch alive(Owner("me"), kDeadAfter), dead(Owner("me"), kDeadAfter);
  const LeaseDecision refused =
      alive.OnLook(Text(Owner("other", "4f2a")), OwnerProcess::kAlive, kStart);
  EXPECT_EQ(refused.kind, Kind::kRefuse);
  EXPECT_THAT(refused.reason, AllOf(HasSubstr("job 4f2a on node3 (pid 4242)")));
  const LeaseDecision taken =
      dead.OnLook(Text(Owner("other", "4f2a")), OwnerProcess::kGone, kStart);
  EXPECT_EQ(taken.kind, Kind::kTake);
  EXPECT_THAT(taken.reason, HasSubstr("job 4f2a"));
}

TEST(LeaseWatchTest, RefusesAfterSeeingHeartbeatChange) {
  LeaseWatch watch(Owner("me"), kDeadAfter);
  EXPECT_EQ(watch.OnLook(Text(Owner("other"), 5), OwnerProcess::kUnknown, kStart).kind,
            Kind::kWait);
  EXPECT_EQ(watch.OnLook(Text(Owner("other"), 5), OwnerProcess::kUnknown, kStart + seconds(4)).kind,
            Kind::kWait);
  EXPECT_EQ(watch.OnLook(Text(Owner("other"), 6), OwnerProcess::kUnknown, kStart + seconds(5)).kind,
            Kind::kRefuse);
}

// The age of the lease by the other host's clock does not matter, because clocks of hosts may
// differ.
TEST(LeaseWatchTest, TakesLeaseOnlyAfterWatchingItForDeadTime) {
  LeaseWatch watch(Owner("me"), kDeadAfter);
  const std::string text = Text(Owner("other", "4f2a"), 5);
  EXPECT_EQ(watch.OnLook(text, OwnerProcess::kUnknown, kStart).kind, Kind::kWait);
  EXPECT_EQ(watch.OnLook(text, OwnerProcess::kUnknown, kStart + seconds(59)).kind, Kind::kWait);
  const LeaseDecision taken = watch.OnLook(text, OwnerProcess::kUnknown, kStart + seconds(60));
  EXPECT_EQ(taken.kind, Kind::kTake);
  EXPECT_THAT(taken.reason, HasSubstr("has not renewed it for 60 s"));
}

TEST(LeaseWatchTest, WatchesInvalidText) {
  LeaseWatch watch(Owner("me"), kDeadAfter);
  EXPECT_EQ(watch.OnLook("{", OwnerProcess::kUnknown, kStart).kind, Kind::kWait);
  EXPECT_EQ(watch.OnLook("{", OwnerProcess::kUnknown, kStart + kDeadAfter).kind, Kind::kTake);
}

TEST(LeaseWatchTest, NewerAttemptReplacesOlderOne) {
  for (const OwnerProcess process :
       {OwnerProcess::kUnknown, OwnerProcess::kAlive, OwnerProcess::kGone}) {
    LeaseWatch newer(Owner("me", "job", 3), kDeadAfter), older(Owner("me", "job", 1), kDeadAfter);
    const std::string text = Text(Owner("other", "job", 2));
    EXPECT_EQ(newer.OnLook(text, process, kStart).kind, Kind::kTake);
    EXPECT_EQ(older.OnLook(text, process, kStart).kind, Kind::kRefuse);
  }
  // Without a launcher, two programs cannot be recognized as the same job.
  LeaseWatch without_launcher(Owner("me", "", 2), kDeadAfter);
  EXPECT_EQ(
      without_launcher.OnLook(Text(Owner("other", "", 1)), OwnerProcess::kUnknown, kStart).kind,
      Kind::kWait);
}

TEST(LeaseWatchTest, RequeuedBatchJobReplacesItsEarlierStart) {
  LeaseWatch again(BatchOwner("me", "slurm 5", 1), kDeadAfter);
  EXPECT_EQ(
      again.OnLook(Text(BatchOwner("other", "slurm 5", 0)), OwnerProcess::kUnknown, kStart).kind,
      Kind::kTake);
  // Neither two steps of one allocation nor two allocations count as the same job.
  LeaseWatch beside(BatchOwner("me", "slurm 5", 1), kDeadAfter);
  EXPECT_EQ(
      beside.OnLook(Text(BatchOwner("other", "slurm 5", 1)), OwnerProcess::kAlive, kStart).kind,
      Kind::kRefuse);
  LeaseWatch another(BatchOwner("me", "slurm 6", 1), kDeadAfter);
  EXPECT_EQ(
      another.OnLook(Text(BatchOwner("other", "slurm 5", 0)), OwnerProcess::kUnknown, kStart).kind,
      Kind::kWait);
}

TEST(LeaseWatchTest, RefusesAfterAnotherProcessTookLease) {
  LeaseWatch watch(Owner("me"), kDeadAfter);
  EXPECT_EQ(watch.OnLook(Text(Owner("dead")), OwnerProcess::kUnknown, kStart).kind, Kind::kWait);
  EXPECT_EQ(watch.OnLook(Text(Owner("fast")), OwnerProcess::kUnknown, kStart + kDeadAfter).kind,
            Kind::kRefuse);
}

}  // namespace
}  // namespace dslaunch::lease_core_test

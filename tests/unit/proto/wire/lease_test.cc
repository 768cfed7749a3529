#include "proto/wire/lease.h"

#include <gtest/gtest.h>

namespace dslaunch::lease_test {
namespace {

using Ms = milliseconds;

constexpr Ms kNone(0);

class LeaseTest : public ::testing::Test {
 protected:
  static Lease::Time At(Ms time) { return Lease::Time(std::chrono::hours(3) + time); }
  // Checks the lease regularly from `from` to `until`, as an agent does. Returns the time left at
  // `until`.
  Ms LookOn(Ms from, Ms until) {
    for (; from < until; from += Ms(500)) lease_.Left(At(from));
    return lease_.Left(At(until)).value();
  }
  Ms Left(Ms time) { return lease_.Left(At(time)).value(); }
  uint64_t Renew(Ms time, std::optional<uint64_t> last_seen_us = {}) {
    return lease_.Renew(last_seen_us, At(time));
  }
  // Renews the lease as a front end that has just received an answer of the node. Returns the
  // node's clock.
  uint64_t RenewInTouch(Ms time) {
    const auto heard = At(time).time_since_epoch();
    return Renew(time, static_cast<uint64_t>(std::chrono::microseconds(heard).count()));
  }

  Lease lease_{{.length = Ms(60'000), .look_every = Ms(500), .prompt = Ms(6'000)}, At(kNone)};
};

TEST_F(LeaseTest, ExpiresWithoutRenewal) {
  EXPECT_EQ(LookOn(kNone, Ms(59'000)), Ms(1'000));
  EXPECT_EQ(LookOn(Ms(59'000), Ms(60'000)), kNone);
  RenewInTouch(Ms(60'100));
  EXPECT_EQ(Left(Ms(60'500)), Ms(59'600));
}

TEST_F(LeaseTest, RenewalCountsFromItsArrival) {
  RenewInTouch(Ms(20'000));
  EXPECT_EQ(Left(Ms(50'000)), Ms(30'000));
}

TEST_F(LeaseTest, RenewalsKeepItAlive) {
  std::optional<uint64_t> heard;
  for (Ms time = Ms(500); time < Ms(300'000); time += Ms(500)) {
    heard = Renew(time, heard);
    ASSERT_EQ(Left(time), Ms(60'000));
  }
}

// The network delayed the renewal, so the front end has long declared this node lost.
TEST_F(LeaseTest, DelayedRenewalCountsFromItsLastAnswer) {
  const uint64_t heard = Renew(Ms(1'000));
  LookOn(kNone, Ms(40'000));
  Renew(Ms(40'000), heard);
  EXPECT_EQ(Left(Ms(40'000)), Ms(1'000 + 6'000 + 60'000 - 40'000));
  Renew(Ms(40'500), heard);
  EXPECT_EQ(Left(Ms(41'000)), Ms(26'000));
}

// The node stalled at its start, and the front end's first renewals were delayed.
TEST_F(LeaseTest, FirstRenewalsCountFromTheStart) {
  Renew(Ms(40'000));
  EXPECT_EQ(LookOn(kNone, Ms(40'000)), Ms(6'000 + 60'000 - 40'000));
  Renew(Ms(41'000));
  EXPECT_EQ(Left(Ms(41'000)), Ms(25'000));
  RenewInTouch(Ms(41'500));
  EXPECT_EQ(Left(Ms(41'500)), Ms(60'000));
}

TEST_F(LeaseTest, NewTermsApplyToEarlierRenewals) {
  lease_.SetTerms({.length = Ms(10'000), .look_every = Ms(500), .prompt = Ms(10'000)});
  Renew(Ms(9'000));
  EXPECT_EQ(LookOn(kNone, Ms(9'000)), Ms(10'000));
  lease_.SetTerms({.length = Ms(60'000), .look_every = Ms(500), .prompt = Ms(6'000)});
  EXPECT_EQ(Left(Ms(9'000)), Ms(6'000 + 60'000 - 9'000));
}

TEST_F(LeaseTest, LimitsImpossibleAnswersInRenewals) {
  Renew(Ms(1'000), uint64_t(-1));
  EXPECT_EQ(Left(Ms(1'000)), Ms(60'000));
  Renew(Ms(2'000), 0);
  EXPECT_EQ(Left(Ms(2'000)), Ms(59'000));
}

TEST_F(LeaseTest, GrantsTimeToReadRenewalsAfterAStall) {
  EXPECT_EQ(LookOn(kNone, Ms(1'000)), Ms(59'000));
  EXPECT_EQ(Left(Ms(100'000)), Lease::kCatchUp);
  EXPECT_EQ(LookOn(Ms(100'000), Ms(102'000)), Ms(1'000));
  EXPECT_EQ(LookOn(Ms(102'000), Ms(103'000)), kNone);
  EXPECT_EQ(LookOn(Ms(103'000), Ms(110'000)), kNone);
}

// A laptop was suspended with its front end. The first renewal afterwards is an old one, and the
// second is new.
TEST_F(LeaseTest, SurvivesSuspensionTogetherWithItsFrontEnd) {
  uint64_t heard = Renew(Ms(1'000), Renew(Ms(500)));
  const Ms awake(7 * 3'600'000);
  EXPECT_EQ(Left(awake), Lease::kCatchUp);
  heard = Renew(awake + Ms(400), heard);
  EXPECT_EQ(LookOn(awake, awake + Ms(500)), Ms(2'500));
  Renew(awake + Ms(900), heard);
  EXPECT_EQ(LookOn(awake + Ms(500), awake + Ms(1'000)), Ms(59'900));
}

TEST_F(LeaseTest, GrantsExtraTimeOnlyOnceForRepeatedStalls) {
  EXPECT_EQ(Left(Ms(100'000)), Lease::kCatchUp);
  EXPECT_EQ(Left(Ms(102'000)), Ms(1'000));
  EXPECT_EQ(Left(Ms(104'000)), kNone);
}

TEST_F(LeaseTest, StallDoesNotExtendTheRemainingTime) {
  EXPECT_EQ(Left(Ms(59'000)), Ms(1'000));
  EXPECT_EQ(Left(Ms(60'000)), kNone);
}

TEST_F(LeaseTest, NewTermsCountFromTheSameRenewal) {
  RenewInTouch(Ms(10'000));
  lease_.SetTerms({.length = Ms(6'000), .look_every = Ms(500), .prompt = Ms(6'000)});
  EXPECT_EQ(Left(Ms(11'000)), Ms(5'000));
  lease_.SetTerms({.length = kNone});
  EXPECT_EQ(lease_.Left(At(Ms(1'000'000))), std::nullopt);
}

TEST(BootClockTest, NeverGoesBack) {
  const BootClock::time_point before = BootClock::now();
  EXPECT_GT(before.time_since_epoch().count(), 0);
  EXPECT_GE(BootClock::now(), before);
}

}  // namespace
}  // namespace dslaunch::lease_test

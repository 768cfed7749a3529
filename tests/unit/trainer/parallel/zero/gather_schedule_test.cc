#include "trainer/parallel/zero/gather_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace dslaunch::gather_schedule_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Kind = GatherAction::Kind;

// Carries out the decisions of a schedule, for units of 10 elements.
class Driver {
 public:
  Driver(const GatherLimits& limits, size_t units) : schedule_(limits) {
    for (size_t i = 0; i < units; ++i) schedule_.AddUnit(10, /*stays=*/false);
  }

  void Begin() {
    schedule_.Begin(/*trains=*/true);
    GatherAhead();
  }
  void Read(size_t unit) {
    schedule_.Read(unit);
    while (const auto action = schedule_.NextFor(unit)) Do(*action);
    schedule_.Pin(unit);
    GatherAhead();
    if (schedule_.Unpin(unit)) Do({Kind::kRelease, unit});
  }
  void End() {
    schedule_.End();
    for (size_t i = 0; i < 4; ++i) {
      if (schedule_.IsLive(i) && !schedule_.IsHeld(i)) schedule_.Released(i);
    }
  }
  void Pass(const std::vector<size_t>& units) {
    Begin();
    for (const size_t unit : units) Read(unit);
    End();
    done_.clear();
  }

  // Returns the actions since the last call: "gather 0", "ahead 1", "release 2".
  std::vector<std::string> Done() { return std::exchange(done_, {}); }
  GatherSchedule& schedule() { return schedule_; }

 private:
  void GatherAhead() {
    while (const auto action = schedule_.NextAhead()) Do(*action);
  }
  void Do(const GatherAction& action) {
    const bool releases = action.kind == Kind::kRelease;
    const bool ahead = action.kind == Kind::kGatherAhead;
    done_.push_back((releases ? "release "
                     : ahead  ? "ahead "
                              : "gather ") +
                    std::to_string(action.unit));
    if (releases) return schedule_.Released(action.unit);
    schedule_.Gathered(action.unit, ahead);
  }

  GatherSchedule schedule_;
  std::vector<std::string> done_;
};

TEST(GatherSchedule, ReleasesLeastRecentlyUsedInFirstPass) {
  Driver driver({.max_live_parameters = 20}, 4);
  driver.Begin();
  for (const size_t unit : {0, 1, 0, 2}) driver.Read(unit);
  EXPECT_THAT(driver.Done(), ElementsAre("gather 0", "gather 1", "release 1", "gather 2"));
}

TEST(GatherSchedule, GathersExpectedUnitsAheadWithinBucket) {
  Driver driver({.prefetch_bucket_size = 20}, 4);
  driver.Pass({0, 1, 2, 3});
  driver.Begin();
  EXPECT_THAT(driver.Done(), ElementsAre("ahead 0", "ahead 1"));
  driver.Read(0);
  EXPECT_THAT(driver.Done(), ElementsAre("ahead 2", "release 0")) << "unit 0 is not used again";
}

TEST(GatherSchedule, ReleasesUnitsWhoseNextUseIsFar) {
  Driver driver({.prefetch_bucket_size = 10, .max_reuse_distance = 10}, 4);
  driver.Pass({0, 1, 2, 0});
  driver.Begin();
  driver.Read(0);
  EXPECT_THAT(driver.Done(), ElementsAre("ahead 0", "ahead 1", "release 0"));
  driver.Read(1);
  driver.Read(2);
  EXPECT_THAT(driver.Done(), ElementsAre("ahead 2", "release 1", "ahead 0", "release 2"));
}

TEST(GatherSchedule, KeepsUnitsThatAreUsedSoonerThanPrefetched) {
  Driver driver({.max_live_parameters = 20}, 4);
  driver.Pass({0, 1, 2, 1, 0});
  driver.Begin();
  EXPECT_THAT(driver.Done(), ElementsAre("ahead 0", "ahead 1"));
  driver.Read(0);
  EXPECT_THAT(driver.Done(), IsEmpty()) << "unit 1 is used before unit 2 is";
  driver.Read(1);
  EXPECT_THAT(driver.Done(), ElementsAre("release 0", "ahead 2"));
}

TEST(GatherSchedule, GathersNothingAheadAfterDeviation) {
  Driver driver({.prefetch_bucket_size = 10}, 4);
  driver.Pass({0, 1, 2});
  driver.Begin();
  driver.Read(3);
  EXPECT_THAT(driver.Done(), ElementsAre("ahead 0", "gather 3"));
}

TEST(GatherSchedule, KeepsHeldUnits) {
  Driver driver({.max_live_parameters = 10}, 4);
  driver.schedule().AddUnit(10, /*stays=*/true);
  driver.Begin();
  driver.schedule().Hold(0);
  driver.Read(0);
  driver.Read(1);
  EXPECT_THAT(driver.Done(), ElementsAre("gather 0", "gather 1"));
  EXPECT_EQ(driver.schedule().live_elements(), 20) << "the unit that stays counts for no limit";
  EXPECT_TRUE(driver.schedule().Unhold(0));
  driver.Read(2);
  EXPECT_THAT(driver.Done(), ElementsAre("release 0", "release 1", "gather 2"));
}

}  // namespace
}  // namespace dslaunch::gather_schedule_test

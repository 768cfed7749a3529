#include "base/deadline.h"

#include <gtest/gtest.h>

namespace dslaunch::deadline_test {
namespace {

TEST(DeadlineTest, RoundsTimeLeftUpSoThatPollNeverSpins) {
  const Deadline soon = Deadline::At(Clock::now() + std::chrono::microseconds(300));
  EXPECT_LE(soon.PollMs(), 1);
  EXPECT_TRUE(soon.Expired() || soon.PollMs() == 1 || soon.Expired());
  EXPECT_EQ(Deadline::At(Clock::now() - milliseconds(5)).PollMs(), 0);
  EXPECT_TRUE(Deadline::At(Clock::now() - milliseconds(5)).Expired());
}

TEST(DeadlineTest, EarlierReturnsTheEarlierDeadline) {
  const Deadline early = Deadline::After(milliseconds(10));
  const Deadline late = Deadline::After(milliseconds(10'000));
  EXPECT_EQ(early.Earlier(late).when(), early.when());
  EXPECT_EQ(late.Earlier(early).when(), early.when());
}

}  // namespace
}  // namespace dslaunch::deadline_test

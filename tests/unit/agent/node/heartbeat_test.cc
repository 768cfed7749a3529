#include "agent/node/heartbeat.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

namespace dslaunch::heartbeat_test {
namespace {

TEST(HeartbeatTest, BeatsWhileLoopIsBlockedAndReportsDeadLoop) {
  std::mutex mutex;
  std::condition_variable changed;
  int living = 0, dead = 0;
  const auto wait = [&](const int& count, int at_least) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, milliseconds(20'000), [&] { return count >= at_least; });
  };
  Heartbeat heart(milliseconds(5), milliseconds(300), [&](bool loop_lives) {
    const std::lock_guard lock(mutex);
    ++(loop_lives ? living : dead);
    changed.notify_all();
  });
  EXPECT_TRUE(wait(living, 3));  // beats arrive although the loop has not run yet
  EXPECT_TRUE(wait(dead, 2));
  const int before = [&] {
    const std::lock_guard lock(mutex);
    return living;
  }();
  heart.LoopTurned();
  EXPECT_TRUE(wait(living, before + 1));
}

}  // namespace
}  // namespace dslaunch::heartbeat_test

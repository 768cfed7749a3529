#include "base/mutex.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/deadline.h"

namespace dslaunch::mutex_test {
namespace {

constexpr milliseconds kLong(10'000);
constexpr milliseconds kShort(1);

struct Shared {
  Mutex mutex;
  CondVar changed;
  int count DSL_GUARDED_BY(mutex) = 0;

  void Add() {
    const MutexLock lock(mutex);
    ++count;
    changed.NotifyAll();
  }
};

TEST(MutexTest, LockExcludesOtherThreads) {
  constexpr int kTimes = 10'000;
  Shared shared;
  const auto add = [&] {
    for (int i = 0; i < kTimes; ++i) shared.Add();
  };
  std::thread other(add);
  add();
  other.join();
  const MutexLock lock(shared.mutex);
  EXPECT_EQ(shared.count, 2 * kTimes);
}

TEST(MutexTest, OtherThreadsCanLockBetweenUnlockAndLock) {
  Shared shared;
  {
    MutexLock lock(shared.mutex);
    lock.Unlock();
    std::thread([&] { shared.Add(); }).join();
    lock.Lock();
    EXPECT_EQ(shared.count, 1);
    lock.Unlock();
  }
  shared.Add();  // fails if the destructor unlocked twice
}

TEST(MutexTest, WaitReleasesMutexAndHoldsItOnReturn) {
  Shared shared;
  std::thread other;
  {
    const MutexLock lock(shared.mutex);
    other = std::thread([&] { shared.Add(); });  // Add() blocks until this thread waits
    const auto added = [&]() DSL_REQUIRES(shared.mutex) { return shared.count == 1; };
    EXPECT_TRUE(shared.changed.WaitFor(shared.mutex, kLong, added));
    EXPECT_TRUE(shared.changed.WaitUntil(shared.mutex, Clock::now() - kShort, added));
    shared.changed.Wait(shared.mutex, added);
  }
  other.join();
  shared.Add();
}

TEST(MutexTest, WaitEndsAtItsTimeLimit) {
  Shared shared;
  {
    const MutexLock lock(shared.mutex);
    const auto added = [&]() DSL_REQUIRES(shared.mutex) { return shared.count == 1; };
    EXPECT_FALSE(shared.changed.WaitFor(shared.mutex, kShort, added));
    EXPECT_FALSE(shared.changed.WaitUntil(shared.mutex, Clock::now() + kShort, added));
    shared.changed.WaitUntil(shared.mutex, Clock::now() + kShort);
  }
  shared.Add();
}

}  // namespace
}  // namespace dslaunch::mutex_test

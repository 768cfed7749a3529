// The standard library's mutex and condition variable, with annotations by which clang checks that
// what a mutex guards is touched only while it is held (base/thread_annotations.h).
#pragma once

#include <condition_variable>
#include <mutex>

#include "base/thread_annotations.h"

namespace dslaunch {

// Not recursive. Thread-safe.
class DSL_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // Waits until no other thread holds it.
  void Lock() DSL_ACQUIRE() { mutex_.lock(); }
  // By the thread that holds it.
  void Unlock() DSL_RELEASE() { mutex_.unlock(); }
  // For the analysis alone, and does nothing: the caller holds it, but by another name.
  void AssertHeld() const DSL_ASSERT_CAPABILITY() {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex from its constructor to its destructor, but between Unlock and Lock. One thread's
// own.
class DSL_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) DSL_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  ~MutexLock() DSL_RELEASE() {
    if (held_) mutex_.Unlock();
  }

  // While it is held.
  void Unlock() DSL_RELEASE() {
    held_ = false;
    mutex_.Unlock();
  }
  // After Unlock.
  void Lock() DSL_ACQUIRE() {
    mutex_.Lock();
    held_ = true;
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

// Lets threads wait for what others change under a mutex. Each wait is with that mutex held by the
// caller's thread: it is let go of during the wait and held again on return. The condition, a
// predicate, is called with it held, and says so for the analysis:
//   done_changed_.Wait(mutex_, [this]() DSL_REQUIRES(mutex_) { return done_; });
// Thread-safe.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  // Wakes one that waits, or all. The mutex need not be held.
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

  // Returns when `condition` holds. Only where something else bounds the wait.
  template <class Condition>
  void Wait(Mutex& mutex, Condition condition) DSL_REQUIRES(mutex) {
    Adopted lock(mutex);
    condition_.wait(lock.lock, condition);
  }
  // Returns when `condition` holds, or else at `when`; whether it holds.
  template <class TimePoint, class Condition>
  bool WaitUntil(Mutex& mutex, TimePoint when, Condition condition) DSL_REQUIRES(mutex) {
    Adopted lock(mutex);
    return condition_.wait_until(lock.lock, when, condition);
  }
  // The same after `duration`.
  template <class Duration, class Condition>
  bool WaitFor(Mutex& mutex, Duration duration, Condition condition) DSL_REQUIRES(mutex) {
    Adopted lock(mutex);
    return condition_.wait_for(lock.lock, duration, condition);
  }
  // Without a condition: returns at `when`, when notified, or for no reason.
  template <class TimePoint>
  void WaitUntil(Mutex& mutex, TimePoint when) DSL_REQUIRES(mutex) {
    Adopted lock(mutex);
    condition_.wait_until(lock.lock, when);
  }

 private:
  // The standard library's view of a mutex that the caller holds, and goes on holding.
  struct Adopted {
    explicit Adopted(Mutex& mutex) : lock(mutex.mutex_, std::adopt_lock) {}
    ~Adopted() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };
  std::condition_variable condition_;
};

}  // namespace dslaunch

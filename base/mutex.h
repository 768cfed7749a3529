// Annotates the standard library's mutex and condition variable, so that clang checks that guarded
// data is accessed only while the mutex is held (base/thread_annotations.h).
#pragma once

#include <condition_variable>
#include <mutex>

#include "base/thread_annotations.h"

namespace dslaunch {

// A non-recursive mutex that clang's analysis can track. Thread-safe.
class DSL_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // Waits until no other thread holds the mutex, then acquires the mutex.
  void Lock() DSL_ACQUIRE() { mutex_.lock(); }
  // Releases the mutex. Precondition: the calling thread holds it.
  void Unlock() DSL_RELEASE() { mutex_.unlock(); }
  // Declares to clang's analysis that the caller holds this mutex under another name. Does nothing
  // at run time.
  void AssertHeld() const DSL_ASSERT_CAPABILITY() {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex from construction to destruction, except between Unlock() and Lock(). Used by one
// thread only.
class DSL_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) DSL_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;
  ~MutexLock() DSL_RELEASE() {
    if (held_) mutex_.Unlock();
  }

  // Releases the mutex early. Precondition: this object holds it.
  void Unlock() DSL_RELEASE() {
    held_ = false;
    mutex_.Unlock();
  }
  // Acquires the mutex again. Precondition: Unlock() was called.
  void Lock() DSL_ACQUIRE() {
    mutex_.Lock();
    held_ = true;
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

// A condition variable. The caller of a wait holds the mutex, which is released during the wait and
// held again on return. The condition is called with the mutex held, so it is annotated
// accordingly:
//   done_changed_.Wait(mutex_, [this]() DSL_REQUIRES(mutex_) { return done_; });
// Thread-safe.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  // Wakes one waiting thread. The caller need not hold the mutex.
  void NotifyOne() { condition_.notify_one(); }

  // Wakes all waiting threads. The caller need not hold the mutex.
  void NotifyAll() { condition_.notify_all(); }

  // Waits until `condition` holds, without a limit. Use this only if another mechanism bounds the
  // wait.
  template <class Condition>
  void Wait(Mutex& mutex, Condition condition) DSL_REQUIRES(mutex) {
    Adopted lock(mutex);
    condition_.wait(lock.lock, condition);
  }
  // Waits until `condition` holds or the time `when` is reached. Returns whether `condition` holds.
  template <class TimePoint, class Condition>
  bool WaitUntil(Mutex& mutex, TimePoint when, Condition condition) DSL_REQUIRES(mutex) {
    Adopted lock(mutex);
    return condition_.wait_until(lock.lock, when, condition);
  }
  // Waits until `condition` holds or `duration` has passed. Returns whether `condition` holds.
  template <class Duration, class Condition>
  bool WaitFor(Mutex& mutex, Duration duration, Condition condition) DSL_REQUIRES(mutex) {
    Adopted lock(mutex);
    return condition_.wait_for(lock.lock, duration, condition);
  }
  // Waits until a notification or the time `when`. May also return earlier (spurious wakeup).
  template <class TimePoint>
  void WaitUntil(Mutex& mutex, TimePoint when) DSL_REQUIRES(mutex) {
    Adopted lock(mutex);
    condition_.wait_until(lock.lock, when);
  }

 private:
  // Wraps the caller's locked mutex for the standard library. Does not release it when destroyed.
  struct Adopted {
    explicit Adopted(Mutex& mutex) : lock(mutex.mutex_, std::adopt_lock) {}
    ~Adopted() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };
  std::condition_variable condition_;
};

}  // namespace dslaunch

// Contains violations that thread_safety_test.py must find. Part of no target.
#include "base/mutex.h"

namespace dslaunch {

class Counter {
 public:
  void Add() {
    const MutexLock lock(mutex_);
    ++count_;
    added_.NotifyAll();
  }
  void AwaitOne() {
    const MutexLock lock(mutex_);
    added_.Wait(mutex_, [this]() DSL_REQUIRES(mutex_) { return count_ > 0; });
  }
#ifdef UNGUARDED
  int count() const { return count_; }
  void AddUnlocked() { AddLocked(); }
  void AwaitTwo() {
    const MutexLock lock(mutex_);
    added_.Wait(mutex_, [this] { return count_ > 1; });
  }
  void AwaitUnlocked() {
    added_.Wait(mutex_, [this]() DSL_REQUIRES(mutex_) { return count_ > 0; });
  }
#endif

 private:
  void AddLocked() DSL_REQUIRES(mutex_) { ++count_; }

  Mutex mutex_;
  CondVar added_;
  int count_ DSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace dslaunch

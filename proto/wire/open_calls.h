// Counts the calls that are in progress on a connection.
#pragma once

#include <memory>

#include "base/deadline.h"
#include "base/mutex.h"

namespace dslaunch {

// Counts a channel's calls, so that the channel's owner can wait for them before it releases the
// channel. gRPC must not drop the last reference to a channel on one of its own threads, such as a
// thread that ends a call. Thread-safe.
class OpenCalls {
 public:
  // Begins a call. The call is in progress until the last copy of the returned value is destroyed.
  std::shared_ptr<const void> Begin() {
    const MutexLock lock(state_->mutex);
    ++state_->count;
    return std::shared_ptr<const void>(state_.get(), [state = state_](const void*) {
      const MutexLock end_lock(state->mutex);
      if (--state->count == 0) state->none.NotifyAll();
    });
  }

  // Waits until no call is in progress. Returns false if the deadline passes first.
  bool AwaitNone(Deadline deadline) {
    State& state = *state_;
    const MutexLock lock(state.mutex);
    return state.none.WaitUntil(state.mutex, deadline.when(),
                                [&]() DSL_REQUIRES(state.mutex) { return state.count == 0; });
  }

 private:
  struct State {
    Mutex mutex;
    CondVar none;
    size_t count DSL_GUARDED_BY(mutex) = 0;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace dslaunch

// Counts the calls in progress on one connection.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "base/deadline.h"

namespace dslaunch {

// gRPC must not drop the last reference to a channel on a thread of its own, which ends a call: so
// whoever owns a channel waits here for its calls before it lets go of it. Thread-safe.
class OpenCalls {
 public:
  // A call is in progress until the last copy of the returned value is destroyed.
  std::shared_ptr<const void> Begin() {
    const std::lock_guard lock(state_->mutex);
    ++state_->count;
    return std::shared_ptr<const void>(state_.get(), [state = state_](const void*) {
      const std::lock_guard end_lock(state->mutex);
      if (--state->count == 0) state->none.notify_all();
    });
  }

  // False when the deadline came first.
  bool AwaitNone(Deadline deadline) {
    std::unique_lock lock(state_->mutex);
    return state_->none.wait_until(lock, deadline.when(), [this] { return state_->count == 0; });
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable none;
    size_t count = 0;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace dslaunch

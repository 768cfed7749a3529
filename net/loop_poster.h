// Posts callbacks to an event loop from threads that may outlive the loop.
#pragma once

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <memory>
#include <utility>

#include "base/mutex.h"

namespace dslaunch {

// Posts callbacks to an event loop until it is closed. All threads that post share one poster.
// Thread-safe.
class LoopPoster : public std::enable_shared_from_this<LoopPoster> {
 public:
  explicit LoopPoster(asio::io_context& loop) : loop_(&loop) {}

  // Runs `act` on the loop's thread. After Close(), destroys `act` without calling it.
  template <class Act>
  void Post(Act act) {
    const MutexLock lock(mutex_);
    if (loop_ == nullptr) return;
    asio::post(*loop_, [self = shared_from_this(), act = std::move(act)]() mutable {
      if (self->is_open()) act();
    });
  }

  // Closes the poster. Call this on the loop's thread, before the loop or any object that the
  // callbacks use is destroyed. Pending callbacks are destroyed when the loop polls, or with the
  // loop.
  void Close() {
    const MutexLock lock(mutex_);
    loop_ = nullptr;
  }

 private:
  bool is_open() const {
    const MutexLock lock(mutex_);
    return loop_ != nullptr;
  }

  mutable Mutex mutex_;
  asio::io_context* loop_ DSL_GUARDED_BY(mutex_);  // loop to post to; nullptr after Close()
};

}  // namespace dslaunch

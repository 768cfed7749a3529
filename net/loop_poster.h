// Posts to a loop from threads and calls that may outlive it.
#pragma once

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <memory>
#include <utility>

#include "base/mutex.h"

namespace dslaunch {

// Shared by all who post. Thread-safe.
class LoopPoster : public std::enable_shared_from_this<LoopPoster> {
 public:
  explicit LoopPoster(asio::io_context& loop) : loop_(&loop) {}

  // `act` is called on the loop's thread. Once the poster is closed it is destroyed instead.
  template <class Act>
  void Post(Act act) {
    const MutexLock lock(mutex_);
    if (loop_ == nullptr) return;
    asio::post(*loop_, [self = shared_from_this(), act = std::move(act)]() mutable {
      if (self->is_open()) act();
    });
  }

  // To be called before the loop, or what the acts use, is destroyed; on the loop's thread. Acts
  // that are still to come are destroyed when the loop polls, or with it.
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
  asio::io_context* loop_ DSL_GUARDED_BY(mutex_);  // null: closed
};

}  // namespace dslaunch

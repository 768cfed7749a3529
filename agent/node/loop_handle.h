// Lets a thread that may outlive the owner of a loop post to that loop.
#pragma once

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <utility>

#include "base/mutex.h"

namespace dslaunch {

// Thread-safe.
class LoopHandle {
 public:
  explicit LoopHandle(asio::io_context& loop) : loop_(&loop) {}

  // Void after Close.
  template <class Act>
  void Post(Act act) {
    const MutexLock lock(mutex_);
    if (loop_ != nullptr) asio::post(*loop_, std::move(act));
  }
  // The owner is about to be destroyed.
  void Close() {
    const MutexLock lock(mutex_);
    loop_ = nullptr;
  }

 private:
  Mutex mutex_;
  asio::io_context* loop_ DSL_GUARDED_BY(mutex_);
};

}  // namespace dslaunch

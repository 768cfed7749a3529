// The way back to a loop for threads and calls that may outlive it.
#pragma once

#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <mutex>
#include <utility>

namespace dslaunch {

// Shared by all who post. Thread-safe.
class LoopPoster {
 public:
  explicit LoopPoster(asio::io_context& loop) : loop_(&loop) {}

  // `act` is called on the loop's thread. Once the loop is closed it is destroyed instead.
  template <class Act>
  void Post(Act act) {
    const std::lock_guard lock(mutex_);
    if (loop_ != nullptr) asio::post(*loop_, std::move(act));
  }

  // To be called before the loop, or what the acts use, is destroyed; on the loop's thread or when
  // that does not run any more.
  void Close() {
    const std::lock_guard lock(mutex_);
    loop_ = nullptr;
  }

 private:
  std::mutex mutex_;
  asio::io_context* loop_;  // null: closed
};

}  // namespace dslaunch

// A thread that carries the bytes of many connections.
#pragma once

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "base/error.h"

namespace dslaunch {

// Shared by its users, so that it ends with the last of them. Nothing on it may wait. Thread-safe.
class LoopThread {
 public:
  // `purpose` as StartThread's. kUnavailable: there is no thread left.
  static Result<std::shared_ptr<LoopThread>> Start(const std::string& purpose);

  // Waits for the thread, which ends once all operations have ended and left it no work; on that
  // thread it does not wait. One that does not end keeps its thread, and the context with it.
  ~LoopThread();
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

  // An object that may outlive the loop keeps a work guard and a reference to the context.
  const std::shared_ptr<asio::io_context>& context() const { return context_; }

  // Calls `act` on the loop's thread and returns once it has; at once where that is this thread.
  void Run(const std::function<void()>& act);

 private:
  LoopThread() = default;

  const std::shared_ptr<asio::io_context> context_ = std::make_shared<asio::io_context>(1);
  asio::executor_work_guard<asio::io_context::executor_type> work_ =
      asio::make_work_guard(*context_);
  std::future<void> ended_;
  std::thread thread_;
};

// The one of all SSH connections of this process, begun anew where none is left: a node that has
// started needs no thread of its own.
Result<std::shared_ptr<LoopThread>> SshLoop();

}  // namespace dslaunch

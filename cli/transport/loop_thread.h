// A thread that transfers the bytes of many connections.
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

// Shared by its users, and ends with the last of them. Handlers on it must not block. Thread-safe.
class LoopThread {
 public:
  // Starts a thread; `purpose` is as in StartThread. Returns kUnavailable if no thread can be
  // created.
  static Result<std::shared_ptr<LoopThread>> Start(const std::string& purpose);

  // Waits until the thread has ended, which it does once all operations have ended and left it no
  // work; does not wait on that thread itself. An operation that does not end keeps its thread and
  // the context alive.
  ~LoopThread();
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

  // An object that may outlive the loop must keep a work guard and a reference to the context.
  const std::shared_ptr<asio::io_context>& context() const { return context_; }

  // Runs `act` on the loop's thread and returns when it is done; runs it directly if called on that
  // thread.
  void Run(const std::function<void()>& act);

 private:
  LoopThread() = default;

  const std::shared_ptr<asio::io_context> context_ = std::make_shared<asio::io_context>(1);
  asio::executor_work_guard<asio::io_context::executor_type> work_ =
      asio::make_work_guard(*context_);
  std::future<void> ended_;
  std::thread thread_;
};

// Returns the loop of all SSH connections of this process, started again if it has ended. A node
// that runs needs no thread of its own.
Result<std::shared_ptr<LoopThread>> SshLoop();

}  // namespace dslaunch

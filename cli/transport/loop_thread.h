// Provides a thread that transfers the bytes of many connections.
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

// Runs an io_context on a thread shared by all owners; the last owner ends the thread. Handlers on
// the thread must not block. Thread-safe.
class LoopThread {
 public:
  // Starts a thread named after `purpose` (see StartThread). Returns kUnavailable if no thread can
  // be created.
  static Result<std::shared_ptr<LoopThread>> Start(const std::string& purpose);

  // Waits until the thread has ended, which happens once all operations have ended and no work is
  // left. Does not wait if called on the thread itself. An operation that never ends keeps its
  // thread and the context alive.
  ~LoopThread();
  LoopThread(const LoopThread&) = delete;
  LoopThread& operator=(const LoopThread&) = delete;

  // Returns the thread's context. An object that may outlive the loop must keep a work guard and a
  // reference to the context.
  const std::shared_ptr<asio::io_context>& context() const { return context_; }

  // Runs `act` on the loop's thread and returns when `act` has returned. Calls `act` directly if
  // already on that thread.
  void Run(const std::function<void()>& act);

 private:
  LoopThread() = default;

  const std::shared_ptr<asio::io_context> context_ = std::make_shared<asio::io_context>(1);
  asio::executor_work_guard<asio::io_context::executor_type> work_ =
      asio::make_work_guard(*context_);
  std::future<void> ended_;
  std::thread thread_;
};

// Returns the loop of all SSH connections of this process, so that a running node needs no thread
// of its own. Starts a new loop if the previous loop has ended.
Result<std::shared_ptr<LoopThread>> SshLoop();

}  // namespace dslaunch

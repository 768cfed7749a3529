// The thread that carries the bytes of all SSH connections of this process. A node that has started
// needs no thread of its own.
#pragma once

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <functional>
#include <memory>
#include <thread>

#include "base/error.h"

namespace dslaunch {

// Nothing on it may wait. Thread-safe.
class LinkLoop {
 public:
  // The one that there is, or a new one. It ends with its last owner, who may be on it.
  // kUnavailable: there is no thread left.
  static Result<std::shared_ptr<LinkLoop>> Shared();
  ~LinkLoop();
  LinkLoop(const LinkLoop&) = delete;
  LinkLoop& operator=(const LinkLoop&) = delete;

  asio::io_context& context() { return *context_; }

  // Calls `act` on the loop's thread and returns once it has; at once where that is this thread.
  void Run(const std::function<void()>& act);

 private:
  LinkLoop();

  const std::shared_ptr<asio::io_context> context_;  // the thread's too
  const asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread thread_;
};

}  // namespace dslaunch

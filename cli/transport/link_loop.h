// The thread that carries the bytes of all SSH connections of this process. A node that has started
// needs no thread of its own.
#pragma once

#include <asio/io_context.hpp>
#include <functional>

#include "base/error.h"

namespace dslaunch {

// Nothing on it may wait. Thread-safe.
class LinkLoop {
 public:
  // Starts with its first use and ends with the process. kUnavailable: there is no thread left.
  static Result<LinkLoop*> Shared();

  asio::io_context& context() { return context_; }

  // Calls `act` on the loop's thread and returns once it has; at once where that is this thread.
  void Run(const std::function<void()>& act);

 private:
  LinkLoop() = default;

  asio::io_context context_{1};
};

}  // namespace dslaunch

// The thread that carries the bytes of all programs of a transport's relays.
#pragma once

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <future>
#include <memory>
#include <thread>

#include "base/error.h"

namespace dslaunch {

// Shared by the clients of the relays, so that it ends with the last of them. Thread-safe.
class RelayLoop {
 public:
  // kUnavailable: there is no thread left.
  static Result<std::shared_ptr<RelayLoop>> Start();

  // Waits for the thread, which ends once all calls have ended and left it no work. A call that
  // gRPC does not let go of keeps its thread, and the context with it. Not on that thread.
  ~RelayLoop();
  RelayLoop(const RelayLoop&) = delete;

  // An object that may outlive the loop keeps a work guard and a reference to the context.
  const std::shared_ptr<asio::io_context>& context() const { return context_; }

 private:
  RelayLoop() = default;

  const std::shared_ptr<asio::io_context> context_ = std::make_shared<asio::io_context>(1);
  asio::executor_work_guard<asio::io_context::executor_type> work_ =
      asio::make_work_guard(*context_);
  std::future<void> ended_;
  std::thread thread_;
};

}  // namespace dslaunch

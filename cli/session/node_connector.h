// Reaches nodes without blocking: a thread for each attempt, bounded by the connect timeout.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>

#include "cli/transport/transport.h"

namespace dslaunch {

// On the loop's thread. Never destroyed: an interrupted session does not wait for hosts that never
// answer.
class NodeConnector {
 public:
  // `timeout` for each attempt; `first_wait` at most before the first of KeepTrying's.
  NodeConnector(asio::io_context& loop, Transport& transport, milliseconds timeout,
                milliseconds first_wait)
      : loop_(loop), transport_(transport), timeout_(timeout), first_wait_(first_wait) {}

  // One attempt.
  void Connect(const NodeTarget& target,
               std::function<void(Result<std::unique_ptr<NodeLink>>)> then);

  // Tries until it succeeds: the waits (PauseAfter) double up to a minute, also from one call to
  // the next, until Forget. One call at a time for each index.
  void KeepTrying(size_t index, const NodeTarget& target,
                  std::function<void(std::unique_ptr<NodeLink>)> then);
  void Forget(size_t index) { waits_.erase(index); }

  // Nothing is tried any more. A link that still comes is dropped, which ends its agent.
  void Stop();

 private:
  struct Wait {
    explicit Wait(asio::io_context& loop) : timer(loop) {}
    asio::steady_timer timer;
    int attempts = 0;
  };

  asio::io_context& loop_;
  Transport& transport_;
  const milliseconds timeout_;
  const milliseconds first_wait_;
  std::map<size_t, std::unique_ptr<Wait>> waits_;
  bool stopped_ = false;
};

}  // namespace dslaunch

// Reaches nodes without blocking: a thread for each attempt, bounded by the connect timeout.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>

#include "cli/transport/transport.h"
#include "net/loop_poster.h"

namespace dslaunch {

// On the loop's thread. Its threads own what they use, the transport too: who destroys it waits for
// no host that never answers. A link that comes later than that is dropped, which ends its agent.
class NodeConnector {
 public:
  using Then = std::function<void(Result<std::unique_ptr<NodeLink>>)>;

  // `timeout` for each attempt; the first pause is at most `first_wait`.
  NodeConnector(asio::io_context& loop, std::shared_ptr<LoopPoster> poster,
                std::shared_ptr<Transport> transport, milliseconds timeout, milliseconds first_wait)
      : loop_(loop),
        poster_(std::move(poster)),
        transport_(std::move(transport)),
        timeout_(timeout),
        first_wait_(first_wait) {}

  // One attempt; as of action::Connect. One at a time for each index.
  void Connect(size_t index, const NodeTarget& target, int attempt, Then then);

  // Attempts that are still to begin are given up, without an answer.
  void Stop() { pauses_.clear(); }

 private:
  void ConnectNow(const NodeTarget& target, Then then);

  asio::io_context& loop_;
  const std::shared_ptr<LoopPoster> poster_;
  const std::shared_ptr<Transport> transport_;
  const milliseconds timeout_;
  const milliseconds first_wait_;
  std::map<size_t, asio::steady_timer> pauses_;
};

}  // namespace dslaunch

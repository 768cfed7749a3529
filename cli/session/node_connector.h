// Connects to nodes without blocking. Each attempt in progress has a thread and is bounded by the
// connect timeout. The number of concurrent attempts is limited; others wait for their turn.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "cli/transport/transport.h"
#include "net/loop_poster.h"

namespace dslaunch {

// Makes attempts to connect. Used on the loop's thread. The threads own the objects that they use,
// including the transport, so the destructor does not wait for hosts that never answer. A link that
// arrives after the destruction is dropped, which ends its agent.
class NodeConnector {
 public:
  using Then = std::function<void(Result<std::unique_ptr<NodeLink>>)>;

  // Time after which an attempt stops counting against the limit. A host that never answers
  // therefore delays other attempts by this time at most, not by its whole time-out.
  static constexpr milliseconds kCountsFor{3000};

  // Connects by `transport`. `timeout` limits each attempt, measured from its turn. The first pause
  // is at most `first_wait`.
  NodeConnector(asio::io_context& loop, std::shared_ptr<LoopPoster> poster,
                std::shared_ptr<Transport> transport, milliseconds timeout, milliseconds first_wait)
      : loop_(loop),
        poster_(std::move(poster)),
        transport_(std::move(transport)),
        timeout_(timeout),
        first_wait_(first_wait) {}

  // Makes an attempt to connect to node `index`. An `attempt` of 0 connects at once; a larger one
  // first waits for the pause after that many attempts. Calls `then` once with the link or the
  // error, unless Stop() drops the attempt. At most one attempt at a time is allowed for each
  // index.
  void Connect(size_t index, const NodeTarget& target, int attempt, Then then);

  // Drops the attempts that have not begun, without calling their `then`.
  void Stop() {
    pauses_.clear();
    waiting_.clear();
  }

 private:
  struct Attempt {
    NodeTarget target;
    Then then;
  };

  void BeginWaiting();
  Result<void> Begin(const Attempt& attempt);
  void OnAnswered(uint64_t id, Result<std::unique_ptr<NodeLink>> link, const Then& then);

  asio::io_context& loop_;
  const std::shared_ptr<LoopPoster> poster_;
  const std::shared_ptr<Transport> transport_;
  const milliseconds timeout_;
  const milliseconds first_wait_;
  std::map<size_t, asio::steady_timer> pauses_;
  std::deque<Attempt> waiting_;
  uint64_t next_id_ = 0;
  size_t under_way_ = 0;  // number of threads with an attempt in progress
  // A timer for each attempt that counts against the limit; it expires after kCountsFor.
  std::map<uint64_t, asio::steady_timer> counted_;
};

}  // namespace dslaunch

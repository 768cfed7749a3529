// Reaches nodes without blocking: a thread for each attempt that is under way, bounded by the
// connect timeout. Of many only some are, the others wait for their turn.
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

// On the loop's thread. Its threads own what they use, the transport too, so the destructor does
// not wait for hosts that never answer. A link that arrives later is dropped, which ends its agent.
class NodeConnector {
 public:
  using Then = std::function<void(Result<std::unique_ptr<NodeLink>>)>;

  // An attempt that takes longer keeps no other from its turn: a host that never answers costs the
  // others this much once, not its whole time-out.
  static constexpr milliseconds kCountsFor{3000};

  // `timeout` for each attempt, from its turn on; the first pause is at most `first_wait`.
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
  size_t under_way_ = 0;  // threads
  // Timers of the attempts that count, each until kCountsFor is over.
  std::map<uint64_t, asio::steady_timer> counted_;
};

}  // namespace dslaunch

// Looks at the signs of life of a node's ranks from time to time.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "agent/core/agent_action.h"
#include "agent/core/rank_stillness.h"
#include "agent/node/node_output.h"
#include "agent/node/stack_requests.h"
#include "base/deadline.h"

namespace dslaunch {

// On the loop's thread.
class RankWatch {
 public:
  // `stacks` must outlive this.
  RankWatch(asio::io_context& loop, NodeOutput& out, StackRequests& stacks);

  // Looks at the ranks of the attempt that was planned last, until they are stopped. None are
  // looked at if the job has only one rank or standstills are not detected.
  void Begin();
  // Returns how long the ranks have shown no sign of life; without ranks that were not looked at or
  // have failed.
  std::vector<pb::Stillness> Stillness();

 private:
  void Arm();
  void Look();
  // Reads the signatures of ranks with a GPU open, for the next look.
  void ReadSignatures(std::vector<RankPlace> places);

  NodeOutput& out_;
  StackRequests& stacks_;
  asio::steady_timer timer_;
  milliseconds interval_{0};
  std::minstd_rand random_;
  std::vector<RankStillness> ranks_;         // indexed by local rank
  std::map<uint32_t, uint64_t> signatures_;  // indexed by local rank; read since the last look
};

// Returns the mean time between two looks for limits in which six of them must fit: a twelfth of
// the shorter one, so 5 s for 60 s, and at least 100 ms. 0: a limit of 0 does not count, and both
// are.
milliseconds LookInterval(milliseconds setup, milliseconds hang);

}  // namespace dslaunch

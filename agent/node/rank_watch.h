// Checks the signs of life of a node's ranks at intervals.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "agent/core/agent_action.h"
#include "agent/core/rank_stillness.h"
#include "agent/flight/flight_requests.h"
#include "agent/flight/ras_client.h"
#include "agent/node/node_output.h"
#include "agent/node/stack_requests.h"
#include "base/deadline.h"

namespace dslaunch {

// Measures how long each rank has shown no sign of life, by looking at the rank's processes. Used
// on the loop's thread.
class RankWatch {
 public:
  // `report_now` is called after a look at which a rank's time without a sign of life has passed a
  // mark, a time that matters for detecting a standstill (NextMark). `stacks` and `flights` must
  // outlive this object.
  RankWatch(asio::io_context& loop, NodeOutput& out, StackRequests& stacks,
            const FlightRequests& flights, std::function<void()> report_now);

  // Begins to look at the ranks of the last planned attempt, until they are stopped. Does nothing
  // if the job has only one rank or standstills are not detected.
  void Begin();
  // Returns how long each rank has shown no sign of life. Omits ranks that have failed or have not
  // been looked at yet.
  std::vector<pb::Stillness> Stillness();

 private:
  void Arm();
  void Look();
  // Reads the signatures of the ranks at `places` into `signatures`, a member, for use in the next
  // look.
  void ReadSignatures(std::vector<RankPlace> places, StackRequests::Kind kind,
                      std::map<uint32_t, uint64_t>& signatures);
  // Reads whether ranks whose only sign of life is CPU time make exchanges, for use in the next
  // look.
  void ReadExchanges(const std::vector<std::optional<RankSigns>>& signs);

  NodeOutput& out_;
  StackRequests& stacks_;
  const FlightRequests& flights_;
  const std::function<void()> report_now_;
  RasClient ras_;
  asio::steady_timer timer_;
  milliseconds setup_{0};
  milliseconds hang_{0};
  milliseconds interval_{0};
  bool is_at_mark_ = false;      // whether the next look is at a mark (NextMark)
  Clock::time_point looked_at_;  // time of the last look at the ranks
  std::minstd_rand random_;
  std::vector<RankStillness> ranks_;  // stillness of each rank, by local rank
  // Signatures that were read since the last look, by local rank.
  std::map<uint32_t, uint64_t> signatures_;
  // Digests of exchanges that were read since the last look, by local rank.
  std::map<uint32_t, uint64_t> exchanges_;
};

// Returns the mean time between two looks: a twelfth of the shorter of the limits `setup` and
// `hang`, such as 5 s for 60 s, but at least 100 ms. At least six looks then fit into each limit.
// Ignores a limit of 0; returns 0 if both limits are 0.
milliseconds LookInterval(milliseconds setup, milliseconds hang);

// Returns the time until a rank without a sign of life reaches the next mark; nullopt if all marks
// have passed. Marks are times that matter for detecting a standstill: for each limit, the limit
// and StandstillLead before it. For a rank whose only sign of life is CPU time, StandstillLead
// before kComputeFactor times the limit is a mark too. Ignores limits of 0 and ranks that have
// ended.
std::optional<milliseconds> NextMark(const std::vector<pb::Stillness>& ranks, milliseconds setup,
                                     milliseconds hang);

}  // namespace dslaunch

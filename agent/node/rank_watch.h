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

// Measures how long each rank has shown no sign of life, by looks at its processes. Used on the
// loop's thread.
class RankWatch {
 public:
  // `report_now` is called after a look at which a rank's time has passed a mark (NextMark).
  // `stacks` and `flights` must outlive this object.
  RankWatch(asio::io_context& loop, NodeOutput& out, StackRequests& stacks,
            const FlightRequests& flights, std::function<void()> report_now);

  // Looks at the ranks of the last planned attempt until they are stopped. Does nothing if the job
  // has only one rank or standstills are not detected.
  void Begin();
  // Returns how long each rank has shown no sign of life. Omits ranks that were not looked at or
  // have failed.
  std::vector<pb::Stillness> Stillness();

 private:
  void Arm();
  void Look();
  // Reads signatures of ranks into `signatures`, a member, for the next look.
  void ReadSignatures(std::vector<RankPlace> places, StackRequests::Kind kind,
                      std::map<uint32_t, uint64_t>& signatures);
  // Reads, for the next look, whether ranks that show only CPU time exchange anything.
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
  bool is_at_mark_ = false;      // true if the next look is at a mark
  Clock::time_point looked_at_;  // time of the last look
  std::minstd_rand random_;
  std::vector<RankStillness> ranks_;         // indexed by local rank
  std::map<uint32_t, uint64_t> signatures_;  // signatures read since the last look, by local rank
  std::map<uint32_t, uint64_t> exchanges_;   // exchange digests since the last look, by local rank
};

// Returns the mean time between two looks, so that at least six looks fit into each limit: a
// twelfth of the shorter limit, such as 5 s for 60 s, but at least 100 ms. A limit of 0 does not
// count; the result is 0 if both are 0.
milliseconds LookInterval(milliseconds setup, milliseconds hang);

// Returns the time until a rank that shows no sign of life meanwhile reaches one of the times that
// decide; nullopt if all have passed. These are: StandstillLead before a limit, the limit itself,
// and StandstillLead before kComputeFactor limits of CPU time alone. Limits of 0 do not count.
std::optional<milliseconds> NextMark(const std::vector<pb::Stillness>& ranks, milliseconds setup,
                                     milliseconds hang);

}  // namespace dslaunch

#include "cli/core/end_decision.h"

#include <algorithm>

namespace dslaunch {

// A node that other nodes declared lost because of its silence can report little more, so the
// session does not need that node. The same applies to a late node that was never part of the job.
bool IsNeeded(const EndView& node) {
  const bool is_silent = !node.stream_ended && node.given_up;
  return !node.ended && node.is_part && !is_silent;
}

EndDecision DecideEnd(const std::vector<EndView>& nodes) {
  if (std::ranges::all_of(nodes, &EndView::ended)) return EndDecision::kEnd;
  return std::ranges::any_of(nodes, IsNeeded) ? EndDecision::kWait : EndDecision::kWaitBriefly;
}

}  // namespace dslaunch

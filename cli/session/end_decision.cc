#include "cli/session/end_decision.h"

#include <algorithm>

namespace dslaunch {

// Little will come from a node that the others gave up for its silence, or from one that came late
// and never was a part of the job.
bool IsNeeded(const EndView& node) {
  const bool is_silent = !node.stream_ended && node.given_up;
  return !node.ended && node.is_part && !is_silent;
}

EndDecision DecideEnd(const std::vector<EndView>& nodes) {
  if (std::ranges::all_of(nodes, &EndView::ended)) return EndDecision::kEnd;
  return std::ranges::any_of(nodes, IsNeeded) ? EndDecision::kWait : EndDecision::kWaitBriefly;
}

}  // namespace dslaunch

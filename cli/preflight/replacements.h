// Sets aside nodes that are not fit for a job. All functions are pure.
#pragma once

#include <string>
#include <vector>

#include "cli/plan/launch_plan.h"

namespace dslaunch {

struct UnfitNode {
  std::string name;
  bool fails = false;  // true if the node is unusable; false if it is only slow
};

struct Replacements {
  LaunchPlan plan;
  // A line for each unfit node, such as "node3 is set aside; spare node9 gets its ranks".
  std::vector<std::string> notices;
  // Names of unfit nodes that cannot be used and have no replacement. These may be nodes that are
  // not in the plan: the machine of a local job, and the machine of the front end.
  std::vector<std::string> missing;
};

// Returns `plan` without the unfit nodes that the job can do without, and without unfit spares.
// Handles unusable nodes before slow nodes. A fit spare with enough slots replaces an unfit node
// and gets as many ranks. Without such a spare, a job with a range of nodes begins with fewer
// nodes. A slow node that cannot be replaced or left out keeps its ranks.
Replacements ReplaceUnfit(LaunchPlan plan, std::vector<UnfitNode> unfit);

}  // namespace dslaunch

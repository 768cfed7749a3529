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

// Removes unfit nodes from `plan` as long as the job can do without them, first the nodes that
// cannot be used. A spare with enough slots takes the place of such a node and gets as many ranks,
// or a job with a range of nodes begins with fewer nodes. A slow node without a replacement keeps
// its ranks. Unfit spares are removed too.
Replacements ReplaceUnfit(LaunchPlan plan, std::vector<UnfitNode> unfit);

}  // namespace dslaunch

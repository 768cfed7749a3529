// Sets nodes aside that are not fit for a job. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/plan/launch_plan.h"

namespace dslaunch {

struct UnfitNode {
  std::string name;
  bool fails = false;  // the node cannot be used; else it is slow
};

struct Replacements {
  LaunchPlan plan;
  // One line for each unfit node: "node3 is set aside; spare node9 gets its ranks".
  std::vector<std::string> notices;
  // Unfit nodes that cannot be used and have no replacement, also those that are not in the plan:
  // a local job's machine, and the machine of the front end.
  std::vector<std::string> missing;
};

// Takes unfit nodes out of `plan`, those that cannot be used first, as long as they can be spared:
// a spare with enough slots takes the place of one and gets as many ranks, or a job with a range of
// nodes begins with fewer. A slow node without replacement keeps its ranks. Unfit spares are taken
// out too.
Replacements ReplaceUnfit(LaunchPlan plan, std::vector<UnfitNode> unfit);

}  // namespace dslaunch

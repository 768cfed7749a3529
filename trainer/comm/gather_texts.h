// Gathers texts from all ranks.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "dslaunch/process_group.h"

namespace dslaunch {

// Returns every rank's text, by rank. Collective.
std::vector<std::string> GatherTexts(const ProcessGroup& group, const std::string& own);

// Returns the distinct lines of all ranks' texts, without newlines. Every line of `own` must end
// with a newline. Collective.
std::set<std::string> GatherLines(const ProcessGroup& group, const std::string& own);

}  // namespace dslaunch

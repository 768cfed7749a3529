// Exchange of texts between ranks.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "dslaunch/process_group.h"

namespace dslaunch {

// Collective. Returns every rank's text, by rank.
std::vector<std::string> GatherTexts(const ProcessGroup& group, const std::string& own);

// Collective. Returns the lines of all ranks' texts, each of which ends with a newline.
std::set<std::string> GatherLines(const ProcessGroup& group, const std::string& own);

}  // namespace dslaunch

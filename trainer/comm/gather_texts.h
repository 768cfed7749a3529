// Exchange of texts between ranks.
#pragma once

#include <string>
#include <vector>

#include "dslaunch/process_group.h"

namespace dslaunch {

// Collective. Returns every rank's text, by rank.
std::vector<std::string> GatherTexts(const ProcessGroup& group, const std::string& own);

}  // namespace dslaunch

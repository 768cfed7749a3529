// Formats lists of ranks for messages.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// Returns the ranks as ranges with `separator` between them, such as "5" or "0-2, 5". Replaces all
// ranks after the eighth range by their number, as in "0, 2, ... and 93 more". Precondition:
// `ranks` is ascending and not empty.
std::string RankRanges(const std::vector<int>& ranks, const std::string& separator);

}  // namespace dslaunch

// Formats lists of ranks for messages.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// Returns the ranks as ranges, such as "5" or "0-2, 5". Shortens long lists, as in "0, 2, 4 and 93
// more". Precondition: `ranks` is ascending and not empty.
std::string RankRanges(const std::vector<int>& ranks, const std::string& separator);

}  // namespace dslaunch

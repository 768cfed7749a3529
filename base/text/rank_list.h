// Ranks in words.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// "5", "0-2, 5", with as many ranges as people read ("0, 2, 4 and 93 more"); `ranks` ascending, not
// empty.
std::string RankRanges(const std::vector<int>& ranks, const std::string& separator);

}  // namespace dslaunch

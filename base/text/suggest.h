// Suggests names for "Did you mean ...?" in messages about options, keys and names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// Returns the candidate that is closest to `word`; empty if none is close enough to be a likely
// typo (an edit distance of a third of the word, at least 1).
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace dslaunch

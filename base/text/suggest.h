// "Did you mean ...?" for options, keys and names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// The candidate that `word` most likely was meant to be; empty when none is near.
std::string Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace dslaunch

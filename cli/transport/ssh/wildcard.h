// Matches host names with the patterns of ssh's files.
#pragma once

#include <string_view>

namespace dslaunch {

// Returns whether `name` matches `pattern`, in which `*` matches any run of characters and `?` any
// one character. Case-sensitive. Takes time proportional to the product of the lengths.
bool WildcardMatches(std::string_view pattern, std::string_view name);

}  // namespace dslaunch

// Matches the patterns of ssh's files.
#pragma once

#include <string_view>

namespace dslaunch {

// `*` in the pattern matches any run of characters, `?` any one character. Case-sensitive. Takes
// time proportional to the product of the lengths.
bool WildcardMatches(std::string_view pattern, std::string_view name);

}  // namespace dslaunch

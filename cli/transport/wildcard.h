// Names as ssh's files describe them.
#pragma once

#include <string_view>

namespace dslaunch {

// `*` in the pattern is any run of characters, `?` any one; case counts. Linear in the product of
// the lengths.
bool WildcardMatches(std::string_view pattern, std::string_view name);

}  // namespace dslaunch

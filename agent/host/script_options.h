// Finds the options that a Python script defines in its source. Pure.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch {

// Returns "--local_rank" or "--local-rank", as the source spells it where it first appears as an
// argument of a call and a string by itself, as in add_argument("--local_rank", ...). Returns an
// empty string if it appears nowhere. Ignores comments and other strings, and lists, because a list
// of arguments is for another program.
std::string LocalRankOption(std::string_view source);

}  // namespace dslaunch

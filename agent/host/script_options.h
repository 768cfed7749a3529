// Finds the options that a Python script defines in its source.
#pragma once

#include <string>
#include <string_view>

namespace dslaunch {

// Returns "--local_rank" or "--local-rank", as the source first spells it in a whole string that is
// an argument of a call, as in add_argument("--local_rank", ...). Returns an empty string if the
// source has no call with such an argument. Ignores comments and other strings. Also ignores lists,
// because a list of arguments is for another program.
std::string LocalRankOption(std::string_view source);

}  // namespace dslaunch

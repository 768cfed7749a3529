// Expands Slurm's lists of nodes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace dslaunch {

// Largest number of nodes in a list; a longer list is an error.
inline constexpr size_t kMaxListedNodes = 100'000;

// Expands a list such as "login,gpu[001-003,007]-ib[0-1]", in its order. The error, kUsage, is a
// fragment that describes the fault of the list. Has no side effects.
Result<std::vector<std::string>> ExpandNodeList(std::string_view list);

}  // namespace dslaunch

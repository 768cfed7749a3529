// Numbers of things, in words.
#pragma once

#include <string>

namespace dslaunch {

// "1 node", "2 nodes".
inline std::string Count(size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace dslaunch

#pragma once

#include <cstdint>

namespace dslaunch {

// The target of a position that has no target, which losses ignore.
inline constexpr int64_t kNoTarget = -100;

}  // namespace dslaunch

#pragma once

#include <cstdint>

namespace dslaunch {

// The target of a position without one.
inline constexpr int64_t kNoTarget = -100;

}  // namespace dslaunch

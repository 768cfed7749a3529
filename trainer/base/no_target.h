#pragma once

#include <cstdint>

namespace dslaunch {

// Marks a position without a target. Losses ignore such positions.
inline constexpr int64_t kNoTarget = -100;

}  // namespace dslaunch

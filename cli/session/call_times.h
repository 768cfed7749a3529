// Time limits of the front end's calls to an agent.
#pragma once

#include "base/deadline.h"

namespace dslaunch {

inline constexpr milliseconds kCallTimeout(5'000);
inline constexpr milliseconds kPrepareTimeout(30'000);  // its disk may be slow

}  // namespace dslaunch

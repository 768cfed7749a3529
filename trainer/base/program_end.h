// How this process is about to end, for code that runs at the end.
#pragma once

#include <atomic>

namespace dslaunch {

// Set when an error ends the program. Code at the end then does not wait for other ranks, which may
// compute for a long time before they notice.
inline std::atomic<bool> program_failed{false};

}  // namespace dslaunch

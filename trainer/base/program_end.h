// How this process is about to end, for what runs at its end.
#pragma once

#include <atomic>

namespace dslaunch {

// Set once an error ends the program: what then runs at its end does not wait for other ranks,
// which may compute for long before they notice.
inline std::atomic<bool> program_failed{false};

}  // namespace dslaunch

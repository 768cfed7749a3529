// Tells code that runs at the end of the process how the process ends.
#pragma once

#include <atomic>

namespace dslaunch {

// True after an error has ended the program. Code at the end then does not wait for other ranks,
// because these may compute for a long time before they notice the error.
inline std::atomic<bool> program_failed{false};

}  // namespace dslaunch

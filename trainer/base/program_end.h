// Informs code that runs at the end of the process whether an error has ended the program.
#pragma once

#include <atomic>

namespace dslaunch {

// True after an error has ended the program. Other ranks may compute for a long time before they
// detect the error, so code at the end of the process then does not wait for them.
inline std::atomic<bool> program_failed{false};

}  // namespace dslaunch

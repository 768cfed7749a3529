// Whether a terminal can show a screen.
#pragma once

#include "base/error.h"

namespace dslaunch {

// The end of each error: the way to see the same without a screen.
inline constexpr char kInsteadOfScreen[] = "; dslaunch top JOB --once prints the same as text";

// Returns kUsage, with a hint, if `type`, the value of TERM or nullptr, is not in terminfo or
// cannot place the cursor.
Result<void> CheckTerminalType(const char* type);

}  // namespace dslaunch

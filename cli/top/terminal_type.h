// Whether a terminal can show a screen.
#pragma once

#include <string>

#include "base/error.h"

namespace dslaunch {

// The end of each error: the way to see the same without a screen.
inline constexpr char kInsteadOfScreen[] = "; dslaunch top JOB --once prints the same as text";

// Returns the type to draw for: `type`, the value of TERM or nullptr. If this machine's terminfo
// lacks a type that is like xterm, sets TERMINFO to a description of what all of them have, and
// returns its name. Returns kUsage, with a hint, if the type is unknown or cannot place the cursor.
Result<std::string> UsableTerminalType(const char* type);

}  // namespace dslaunch

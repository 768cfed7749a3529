// Determines whether a terminal can show a screen.
#pragma once

#include <string>

#include "base/error.h"

namespace dslaunch {

// The end of each error, which names a way to see the same facts without a screen.
inline constexpr char kInsteadOfScreen[] = "; dslaunch top JOB --once prints the same as text";

// Returns the type to draw for. `type` is the value of TERM, or nullptr. If this machine's terminfo
// lacks a type that is like xterm, sets TERMINFO to a description of the common features of such
// types, and returns its name. Returns kUsage, with a hint, if the type is unknown or cannot place
// the cursor.
Result<std::string> UsableTerminalType(const char* type);

}  // namespace dslaunch

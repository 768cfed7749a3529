// Prints the output of a command that does nothing else meanwhile.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/error.h"

namespace dslaunch {

// Writes all of `text` to stdout and blocks while its reader is slow. A reader that has closed the
// pipe is not an error. Returns kIo if the write fails, for example because the disk is full.
Result<void> PrintText(std::string_view text);

// Like PrintText, but if `text` is longer than the terminal, prints it through $PAGER, or `less` if
// that is not set. PAGER is split at blanks, without a shell; if it is empty or not in PATH, no
// pager is used.
Result<void> PrintPaged(std::string_view text);

// Returns the width of the terminal at `fd`, or 0 if it is not a terminal or its width is unknown.
size_t Columns(int fd);

}  // namespace dslaunch

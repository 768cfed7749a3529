// Prints the output of a command that performs no other work at the same time.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/error.h"

namespace dslaunch {

// Writes all of `text` to stdout and blocks while its reader is slow. A reader that has closed the
// pipe is not an error. Returns kIo if the write fails, for example because the disk is full.
Result<void> PrintText(std::string_view text);

// Prints like PrintText, but if `text` is longer than the terminal, prints it through $PAGER, or
// through `less` if PAGER is not set. PAGER is split at blanks, without a shell. No pager is used
// if PAGER is empty or its program is not in PATH.
Result<void> PrintPaged(std::string_view text);

// Returns the width of the terminal at `fd`; 0 if `fd` is not a terminal or its width is unknown.
size_t Columns(int fd);

}  // namespace dslaunch

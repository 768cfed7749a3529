// What a command was asked to say, when it does nothing else meanwhile.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/error.h"

namespace dslaunch {

// Writes all of `text` to stdout, however long its reader takes. A reader that went away wanted no
// more: no error. kIo for a full disk and the like.
Result<void> PrintText(std::string_view text);

// The same; a terminal that has too few lines for it gets it through $PAGER, or `less` where that
// is not set. PAGER is split at blanks, without a shell; empty, or not in PATH: none.
Result<void> PrintPaged(std::string_view text);

// How wide the terminal at `fd` is; 0: it is none, or does not say.
size_t Columns(int fd);

}  // namespace dslaunch

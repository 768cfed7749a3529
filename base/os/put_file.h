// Writes a file at a path that the user named.
#pragma once

#include <string>

#include "base/error.h"

namespace dslaunch {

// Writes `text` to the file at `path` atomically: a reader sees either the whole text or none of
// it. Without `overwrite`, keeps an existing file and returns FileInTheWay(). Other failures are
// kIo.
Result<void> PutFile(const std::string& path, const std::string& text, bool overwrite);

// Returns the kUsage error for a file that exists already.
Error FileInTheWay(const std::string& path);

}  // namespace dslaunch

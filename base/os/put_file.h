// Writes a file that the user requested.
#pragma once

#include <string>

#include "base/error.h"

namespace dslaunch {

// Writes `text` to the file at `path` atomically: a reader sees either all of the text or nothing.
// Without `overwrite`, keeps an existing file and returns FileInTheWay(). Other failures are kIo.
Result<void> PutFile(const std::string& path, const std::string& text, bool overwrite);

// Returns the kUsage error for an existing file.
Error FileInTheWay(const std::string& path);

}  // namespace dslaunch

// A file that the user asked for.
#pragma once

#include <string>

#include "base/error.h"

namespace dslaunch {

// Puts `text` into the file at `path` in one step: a reader sees all of it or nothing. Without
// `overwrite` a file that is there stays: FileExists. kIo.
Result<void> PutFile(const std::string& path, const std::string& text, bool overwrite);

// kUsage: a file is there already.
Error FileInTheWay(const std::string& path);

}  // namespace dslaunch

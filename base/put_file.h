// A file that the user asked for.
#pragma once

#include <string>

#include "base/error.h"

namespace dslaunch {

// Puts `text` into the file at `path` in one step, so that nobody ever sees a part of it. Without
// `overwrite` a file that is there stays: FileExists. kIo.
Result<void> PutFile(const std::string& path, const std::string& text, bool overwrite);

// kUsage: a file is there already.
Error FileExists(const std::string& path);

}  // namespace dslaunch

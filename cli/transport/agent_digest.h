// The digest with which nodes check the agent that they received, without hashing 19 MB at every
// start.
#pragma once

#include <string>

#include "base/error.h"

namespace dslaunch {

// Returns Sha256OfFile(path), cached in `cache_folder` (absolute; created if missing; empty for no
// cache), by the file's name, with the file's device, inode, size and times, which identify its
// content. An unusable cache only costs time. Errors are kIo.
Result<std::string> AgentDigest(const std::string& path, const std::string& cache_folder);

// Returns $XDG_CACHE_HOME/dslaunch or ~/.cache/dslaunch; empty if there is no home folder.
std::string OwnCacheFolder();

}  // namespace dslaunch

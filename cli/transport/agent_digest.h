// The digest by which nodes check that they got the agent, without hashing 19 MB at every start.
#pragma once

#include <string>

#include "base/error.h"

namespace dslaunch {

// Sha256OfFile(path). Kept in `cache_folder` (absolute; made if missing; empty: none) with what
// tells this file from any other: device, inode, size, times. A cache that cannot be used costs
// time only. kIo.
Result<std::string> AgentDigest(const std::string& path, const std::string& cache_folder);

// $XDG_CACHE_HOME/dslaunch, or ~/.cache/dslaunch; empty: there is no home.
std::string OwnCacheFolder();

}  // namespace dslaunch

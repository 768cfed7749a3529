// Caches the digest with which nodes check the agent that they received, so that the 19 MB file is
// not hashed at every start.
#pragma once

#include <string>

#include "base/error.h"

namespace dslaunch {

// Returns Sha256OfFile(path), cached under the file's name in `cache_folder` (absolute; created if
// missing; empty for no cache). The cached digest is valid for the file's device, inode, size and
// times, which identify the content. An unusable cache is not an error, because the file is then
// hashed again. Returns kIo if the file cannot be read.
Result<std::string> AgentDigest(const std::string& path, const std::string& cache_folder);

// Returns $XDG_CACHE_HOME/dslaunch or ~/.cache/dslaunch; empty if the user has no home folder.
std::string OwnCacheFolder();

}  // namespace dslaunch

// The names of a folder's entries.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// Returns the names in `folder`, sorted. kIo; kBadInput if it has more than a million entries.
std::vector<std::string> FolderNames(const std::string& folder);

}  // namespace dslaunch

// Lists the names of a folder's entries.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

// Returns the sorted names of the entries of `folder`. Throws kIo if the folder cannot be read, and
// kBadInput if it has more than a million entries.
std::vector<std::string> FolderNames(const std::string& folder);

}  // namespace dslaunch

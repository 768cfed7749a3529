// Lists the content of a folder, such as a folder of /proc, /sys or /dev.
#pragma once

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace dslaunch {

// Returns the names in `folder`, sorted; empty if the folder cannot be read.
inline std::vector<std::string> NamesIn(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (std::filesystem::directory_iterator it(folder, ignored), end; it != end;
       it.increment(ignored))
    names.push_back(it->path().filename());
  std::ranges::sort(names);
  return names;
}

}  // namespace dslaunch

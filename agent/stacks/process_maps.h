// Parses the list of files that a process has mapped, from /proc/PID/maps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

struct FileMapping {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t offset = 0;     // offset of the mapping in the file
  bool is_shared = false;  // whether the mapping is writable and shared with other processes
  std::string path;        // path in the process's mount namespace, without " (deleted)"
};

// Returns the mappings of files in the content of /proc/PID/maps, at most `max_mappings`. Skips
// malformed lines. Pure.
std::vector<FileMapping> ParseMaps(std::string_view maps, size_t max_mappings);

// Returns the part of a path after its last slash. Pure.
std::string_view FileName(std::string_view path);

}  // namespace dslaunch

// Parses the mapped files of a process from /proc/PID/maps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

struct FileMapping {
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t offset = 0;     // offset in the file
  bool is_shared = false;  // true if writable and shared with other processes
  std::string path;        // path in the process's mount namespace, without " (deleted)"
};

// Returns the mappings of files in the content of /proc/PID/maps, at most `max_mappings`. Malformed
// lines are skipped. Pure.
std::vector<FileMapping> ParseMaps(std::string_view maps, size_t max_mappings);

// Returns the part of a path after its last slash. Pure.
std::string_view FileName(std::string_view path);

}  // namespace dslaunch

#include "agent/stacks/process_maps.h"

#include <charconv>

#include "base/os/proc_text.h"

namespace dslaunch {
namespace {

// Removes a hexadecimal number and `separator` from the beginning of `text`. Returns false if
// `text` does not begin with them.
bool TakeHex(std::string_view& text, char separator, uint64_t& number) {
  constexpr int kHex = 16;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number, kHex);
  if (status != std::errc() || end == text.data() + text.size() || *end != separator) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()) + 1);
  return true;
}

}  // namespace

std::vector<FileMapping> ParseMaps(std::string_view maps, size_t max_mappings) {
  std::vector<FileMapping> mappings;
  while (!maps.empty() && mappings.size() < max_mappings) {
    std::string_view line = TakeLine(maps);
    FileMapping mapping;
    if (!TakeHex(line, '-', mapping.start) || !TakeHex(line, ' ', mapping.end)) continue;
    mapping.is_shared = TakeWord(line) == "rw-s";
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (!TakeHex(line, ' ', mapping.offset)) continue;
    TakeWord(line);  // skips the device number
    TakeWord(line);  // skips the inode number
    const size_t path = line.find('/');
    if (path == std::string_view::npos) continue;
    line.remove_prefix(path);
    constexpr std::string_view kDeleted = " (deleted)";
    if (line.ends_with(kDeleted)) line.remove_suffix(kDeleted.size());
    mapping.path = line;
    mappings.push_back(std::move(mapping));
  }
  return mappings;
}

std::string_view FileName(std::string_view path) { return path.substr(path.find_last_of('/') + 1); }

}  // namespace dslaunch

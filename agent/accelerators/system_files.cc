#include "agent/accelerators/system_files.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "base/os/folder_names.h"
#include "base/text/split_lines.h"

namespace dslaunch {

std::optional<int> WholeNumber(std::string_view text) {
  int number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

std::string ReadText(const std::string& path) {
  constexpr size_t kMaxBytes = size_t{64} << 10;
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
  return text;
}

std::string ReadLine(const std::string& path) {
  std::string text = ReadText(path);
  text.resize(std::min(text.find('\n'), text.size()));
  return text;
}

std::optional<uint64_t> ReadFileNumber(const std::string& path) {
  const std::string line = ReadLine(path);
  std::string_view text = line;
  const bool is_hex = text.starts_with("0x");
  if (is_hex) text.remove_prefix(2);
  uint64_t number = 0;
  const auto [end, status] =
      std::from_chars(text.data(), text.data() + text.size(), number, is_hex ? 16 : 10);
  if (status != std::errc()) return std::nullopt;
  return number;
}

std::string ValueIn(std::string_view text, std::string_view key) {
  constexpr std::string_view kBlanks = " \t";
  for (std::string_view line : SplitLines(text)) {
    if (!line.starts_with(key)) continue;
    line.remove_prefix(key.size());
    if (line.starts_with(':')) line.remove_prefix(1);
    const size_t begin = line.find_first_not_of(kBlanks);
    // The line has a longer key or no value, so it is skipped.
    if (begin == std::string_view::npos || begin == 0) continue;
    return std::string(line.substr(begin, line.find_last_not_of(kBlanks) + 1 - begin));
  }
  return "";
}

std::optional<int> NumaNodeIn(const std::string& device_folder) {
  std::ifstream file(device_folder + "/numa_node");
  int node = 0;
  if (!(file >> node)) return std::nullopt;
  return std::max(0, node);
}

std::optional<int> CommonNumaNode(const std::string& root, uint64_t vendor,
                                  std::initializer_list<uint64_t> classes) {
  const std::string devices = root + "/sys/bus/pci/devices/";
  std::optional<int> common;
  for (const std::string& address : NamesIn(devices)) {
    const std::string device = devices + address;
    const uint64_t pci_class = ReadFileNumber(device + "/class").value_or(0) >> 8;
    if (ReadFileNumber(device + "/vendor") != vendor ||
        std::ranges::find(classes, pci_class) == classes.end())
      continue;
    const std::optional<int> node = NumaNodeIn(device);
    if (!node || (common && common != node)) return std::nullopt;
    common = node;
  }
  return common;
}

bool IsUsableFile(const std::string& path) { return ::access(path.c_str(), R_OK | W_OK) == 0; }

std::vector<int> NumbersIn(const std::string& folder, std::string_view prefix) {
  std::vector<int> numbers;
  for (const std::string& name : NamesIn(folder)) {
    if (!name.starts_with(prefix)) continue;
    if (const auto number = WholeNumber(std::string_view(name).substr(prefix.size())))
      numbers.push_back(*number);
  }
  std::ranges::sort(numbers);
  return numbers;
}

}  // namespace dslaunch

// Reads small files of /sys and /proc.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// Returns the value of `text`; nullopt unless the whole text is a decimal number from 0 to INT_MAX.
std::optional<int> WholeNumber(std::string_view text);

// Returns the first line of a file without its newline; empty if the file cannot be read.
std::string ReadLine(const std::string& path);

// Returns the number at the start of a file, decimal or hexadecimal after 0x; nullopt if the file
// does not begin with a number.
std::optional<uint64_t> ReadFileNumber(const std::string& path);

// Returns the value of the first line "KEY: value" or "KEY value" of a text; empty if there is no
// such line.
std::string ValueIn(std::string_view text, std::string_view key);

// Returns the first 64 KiB of a file; empty if the file cannot be read.
std::string ReadText(const std::string& path);

// Returns the NUMA node in the folder of a PCI device; 0 if the kernel reports none, and nullopt if
// the folder has no such file.
std::optional<int> NumaNodeIn(const std::string& device_folder);

// Returns the NUMA node that all PCI devices of `vendor` with a class in `classes` (such as 0x0302)
// share. Returns nullopt if there is no such device, or if the NUMA nodes differ or are unknown.
std::optional<int> CommonNumaNode(const std::string& root, uint64_t vendor,
                                  std::initializer_list<uint64_t> classes);

// Returns whether this process may open the device file for reading and writing; false also if the
// file does not exist.
bool IsUsableFile(const std::string& path);

// Returns the numbers N of the names PREFIXN in `folder`, ascending, such as 3 for "davinci3".
// Empty if `folder` cannot be read.
std::vector<int> NumbersIn(const std::string& folder, std::string_view prefix);

}  // namespace dslaunch

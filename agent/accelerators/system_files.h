// Reads small files of /sys and /proc.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// Returns nullopt unless all of `text` is a decimal number from 0 to INT_MAX.
std::optional<int> WholeNumber(std::string_view text);

// Returns the file's first line without a trailing newline; empty if it cannot be read.
std::string ReadLine(const std::string& path);

// Reads a decimal number, or a hexadecimal one after 0x; nullopt if there is none.
std::optional<uint64_t> ReadFileNumber(const std::string& path);

// Returns the value of the line "KEY: value" or "KEY value" of a text; empty if there is none.
std::string ValueIn(std::string_view text, std::string_view key);

// Returns at most 64 KiB of a file; empty if it cannot be read.
std::string ReadText(const std::string& path);

// Returns the NUMA node in a PCI device's folder, 0 if the kernel knows none; nullopt: no such
// file.
std::optional<int> NumaNodeIn(const std::string& device_folder);

// Returns the NUMA node that all PCI devices of a vendor have whose class (0x0302) is one of
// `classes`; nullopt: there are none, or they have different ones.
std::optional<int> CommonNumaNode(const std::string& root, uint64_t vendor,
                                  std::initializer_list<uint64_t> classes);

// Whether this process may open the device file. A file that is not there, or that the permissions
// forbid, is not usable.
bool IsUsableFile(const std::string& path);

// Returns the numbers N of the names PREFIXN in `folder`, ascending: 3 for "davinci3".
std::vector<int> NumbersIn(const std::string& folder, std::string_view prefix);

}  // namespace dslaunch

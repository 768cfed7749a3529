// Reading text files: the kernel's, in /proc and cgroups, and a system's small ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch {

// The whole file, or nullopt when it cannot be read (any more): errno says why.
std::optional<std::string> ReadWhole(const std::string& path);

// At most the first `max_bytes` of a regular file; empty for what is none or cannot be read.
std::string ReadBeginning(const std::string& path, size_t max_bytes);

// Takes the next line off `text`, without its newline.
std::string_view TakeLine(std::string_view& text);

// Takes the next word between blanks off `text`; empty when there is none.
std::string_view TakeWord(std::string_view& text);

// Takes the next word off `text` as a number; 0 when it is none.
uint64_t TakeNumber(std::string_view& text);

}  // namespace dslaunch

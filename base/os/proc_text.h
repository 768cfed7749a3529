// Reads small text files, such as those in /proc and cgroups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch {

// Returns the whole file; nullopt with errno set if it cannot be read.
std::optional<std::string> ReadWhole(const std::string& path);

// Returns at most the first `max_bytes` of a regular file. Returns an empty text if the file is not
// regular or cannot be read.
std::string ReadBeginning(const std::string& path, size_t max_bytes);

// Removes the next line from `text` and returns it without its newline.
std::string_view TakeLine(std::string_view& text);

// Removes the next word (delimited by blanks) from `text` and returns it; empty if there is none.
std::string_view TakeWord(std::string_view& text);

// Removes the next word from `text` and returns it as a number; 0 if it is not a number.
uint64_t TakeNumber(std::string_view& text);

}  // namespace dslaunch

// Reads small text files, such as files in /proc and of cgroups, and parses their content.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dslaunch {

// Returns the content of the whole file; nullopt with errno set if the file cannot be read.
std::optional<std::string> ReadWhole(const std::string& path);

// Returns the first bytes of a regular file, at most `max_bytes`. Returns an empty text if the file
// is not regular or cannot be read.
std::string ReadBeginning(const std::string& path, size_t max_bytes);

// Removes the first line from `text` and returns it without its newline.
std::string_view TakeLine(std::string_view& text);

// Removes the first word (delimited by blanks) from `text` and returns it; empty if there is none.
std::string_view TakeWord(std::string_view& text);

// Removes the first word from `text` and returns it as a number; 0 if it is not a number.
uint64_t TakeNumber(std::string_view& text);

}  // namespace dslaunch

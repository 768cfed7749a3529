// Reads files that have a JSON object in each line.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace dslaunch {

// Calls `use` with each line of `content`, without its line end, and with the line's number. The
// first line has the number `first`.
void ForEachLine(std::string_view content, int64_t first,
                 const std::function<void(std::string_view line, int64_t number)>& use);

// Returns whether a line contains only spaces, tabs and carriage returns.
bool IsBlankLine(std::string_view line);

// Returns the string at `key` of `object`. Throws kBadInput "PLACE has no text under ..." if the
// key is missing or its value is not a string.
const std::string& TextUnder(const char* key, const nlohmann::json& object,
                             const std::string& place);

}  // namespace dslaunch

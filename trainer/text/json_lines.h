// Files that have a JSON object in each line.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace dslaunch {

// Calls `use` with each line of `content`, without its end, and with its number; the first line has
// the number `first`.
void ForEachLine(std::string_view content, int64_t first,
                 const std::function<void(std::string_view line, int64_t number)>& use);

// Returns whether a line has nothing but spaces, tabs and carriage returns.
bool IsBlankLine(std::string_view line);

// Returns the text of `key` of `object`. Throws kBadInput if there is none; the message is
// "PLACE has no text under ...".
const std::string& TextUnder(const char* key, const nlohmann::json& object,
                             const std::string& place);

}  // namespace dslaunch

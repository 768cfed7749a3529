// What must not be shown of an environment and a command line. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// "***" for the value of a variable whose name has TOKEN, KEY, SECRET or PASSWORD in it.
std::string MaskedValue(std::string_view name, std::string_view value);

// The arguments, with "***" for the values of options and assignments whose names end with one of
// those words: --hf_token=x, --api-key x, DB_PASSWORD=x.
std::vector<std::string> MaskedArguments(const std::vector<std::string>& arguments);

}  // namespace dslaunch

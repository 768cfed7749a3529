#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace dslaunch {

// A JSON file that came with a model. Throws kBadInput, naming it, where it is missing, malformed
// or larger than any that is meant.
nlohmann::json ReadJsonFile(const std::string& path);

}  // namespace dslaunch

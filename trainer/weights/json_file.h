#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace dslaunch {

// Reads a JSON file of a folder of weights. Throws kBadInput, naming it, if it is missing,
// malformed or larger than 16 MiB.
nlohmann::json ReadJsonFile(const std::string& path);

}  // namespace dslaunch

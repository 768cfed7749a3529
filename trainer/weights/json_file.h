#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace dslaunch {

inline constexpr uintmax_t kMaxJsonBytes = 16u << 20;  // enough for an index of 100,000 tensors

// Reads a JSON file of a folder of weights. Throws kBadInput, naming the file, if the file is
// missing, malformed or larger than `max_bytes`.
nlohmann::json ReadJsonFile(const std::string& path, uintmax_t max_bytes = kMaxJsonBytes);

}  // namespace dslaunch

// Implements model families whose settings are a table of keys.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trainer/config/json/key_table.h"
#include "trainer/config/model_family.h"

namespace dslaunch {

// A model family whose settings are the struct `Settings`, which supplies ModelFamily::Needs by
// Settings::Needs().
template <class Settings>
class TableFamily : public ModelFamily {
 public:
  TableFamily(const char* type, KeyTable<Settings> keys) : type_(type), keys_(std::move(keys)) {}

  const char* type() const override { return type_; }
  ModelConfig Read(JsonObject& section) const override { return ReadKeys(section, keys_); }
  DataNeeds Needs(const ModelConfig& config) const override {
    return config.As<Settings>().Needs();
  }
  nlohmann::ordered_json Section(const ModelConfig& config) const override {
    nlohmann::ordered_json section = ShowKeys(keys_, config.As<Settings>());
    section["type"] = type_;
    return section;
  }

 private:
  const char* const type_;
  const KeyTable<Settings> keys_;
};

// Returns a sentence about the first value of `keys` that is not a multiple of `parts`, for
// ModelFamily::TensorParallelRefusal; an empty string if all values are multiples.
inline std::string IndivisibleKey(const std::vector<std::pair<const char*, int64_t>>& keys,
                                  int64_t parts) {
  for (const auto& [key, value] : keys) {
    if (value % parts == 0) continue;
    return std::string(key) + " is " + std::to_string(value) +
           ", which is not a multiple of tensor_parallel.autotp_size, " + std::to_string(parts) +
           "; change one of them";
  }
  return "";
}

}  // namespace dslaunch

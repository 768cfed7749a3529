#include "trainer/engine/same_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trainer/base/by_rank.h"

namespace dslaunch {
namespace {

using Json = nlohmann::ordered_json;

// Converts a JSON pointer to a key, such as "/pipeline/schedule" to "pipeline.schedule".
std::string KeyOf(const std::string& pointer) {
  std::string key = pointer.substr(1);
  std::ranges::replace(key, '/', '.');
  return key;
}

}  // namespace

std::string ConfigDisagreement(const std::vector<std::string>& settings) {
  std::vector<Json> ranks;
  for (const std::string& text : settings) ranks.push_back(Json::parse(text));
  for (const Json& rank : ranks) {
    for (const auto& [pointer, unused] : rank.items()) {
      std::vector<std::string> values;
      for (const Json& other : ranks) {
        values.push_back(other.contains(pointer) ? other[pointer].dump() : "none");
      }
      if (GroupRanks(values).size() == 1) continue;
      return "the ranks' configurations differ in " + KeyOf(pointer) + " (" +
             ByRank(values, [](const std::string& value) { return value; }) +
             "); start all ranks with the same configuration";
    }
  }
  return "";
}

}  // namespace dslaunch

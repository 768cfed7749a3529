#include "trainer/config/json/key_table.h"

namespace dslaunch {
namespace {

// Returns a default value as text: "1e-5" rather than 1e-05, words without quotation marks, and
// "0.9, 0.999" for a list.
std::string DefaultText(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) {
    std::string list;
    for (const auto& item : value) list += (list.empty() ? "" : ", ") + DefaultText(item);
    return list;
  }
  if (value.is_number_float() && value == static_cast<int64_t>(value.get<double>())) {
    return std::to_string(static_cast<int64_t>(value.get<double>()));
  }
  std::string text = value.dump();
  if (const size_t zero = text.find("e-0"); zero != std::string::npos) text.erase(zero + 2, 1);
  return text;
}

}  // namespace

std::string MeaningWithDefault(const std::string& meaning, const nlohmann::ordered_json& standard) {
  for (const char* word : {"default", "required", "no effect"}) {
    if (meaning.find(word) != std::string::npos) return meaning;
  }
  const std::string text = standard.is_null() ? "" : DefaultText(standard);
  if (text.empty()) return meaning;
  return meaning + (meaning.empty() ? "" : "; ") + "default " + text;
}

}  // namespace dslaunch

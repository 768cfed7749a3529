#include "cli/tune/recipe_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/text/sanitize.h"

namespace dslaunch {
namespace {

using Json = nlohmann::json;

// Returns whether YAML reads the key as text, not as a number or a truth value.
bool IsPlainKey(const std::string& key) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  constexpr std::string_view kWords[] = {"true", "false", "null", "yes", "no", "on",
                                         "off",  "y",     "n",    "nan", "inf"};
  if (key.empty() || key.find_first_not_of(kLetters) != std::string::npos) return false;
  if (key.front() >= '0' && key.front() <= '9') return false;
  std::string lower = key;
  std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return std::ranges::find(kWords, lower) == std::end(kWords);
}

// Returns the value as JSON on one line, which is valid YAML.
std::string Flow(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void Write(const Json& object, const std::string& indent, std::string& text) {
  for (const auto& [key, value] : object.items()) {
    text += indent + (IsPlainKey(key) ? key : Flow(key)) + ":";
    if (value.is_object() && !value.empty()) {
      text += "\n";
      Write(value, indent + "  ", text);
    } else {
      text += " " + Flow(value) + "\n";
    }
  }
}

}  // namespace

std::string RecipeYaml(const std::string& recipe_json, const std::string& comment) {
  Json recipe = Json::parse(recipe_json, nullptr, false);
  std::string text = "# " + SanitizeForTerminal(comment) + "\n";
  for (const char* section : {"model", "data", "run", "engine"}) {
    if (!recipe.contains(section)) continue;
    Write({{section, recipe[section]}}, "", text);
    recipe.erase(section);
  }
  Write(recipe, "", text);
  return text;
}

}  // namespace dslaunch

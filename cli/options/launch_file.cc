#include "cli/options/launch_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/text/sanitize.h"
#include "base/text/suggest.h"
#include "cli/options/option_values.h"
#include "cli/plan/recipe.h"
#include "cli/plan/safe_variables.h"
#include "cli/plan/yaml_document.h"

namespace dslaunch {
namespace {

using Json = nlohmann::json;

// An option in the launch section of the file.
struct Entry {
  const OptionSpec& spec;
  std::string name;  // position and key for messages: "dslaunch.yaml:3:5: num_gpus"
  const Json& value;
};

Error BadInput(const std::string& what) { return {ExitCode::kBadInput, what}; }

// Returns the option whose full name is `key`; null if no option has that name.
const OptionSpec* FindKey(const OptionTable& table, const std::string& key) {
  const OptionSpec* spec = FindOption(table, (key.size() == 1 ? "-" : "--") + key).spec;
  if (spec == nullptr) return nullptr;
  std::string written = "--" + key;
  std::replace(written.begin() + 2, written.end(), '-', '_');
  for (const std::string& name : NamesOf(*spec)) {
    if (name == written || name == "-" + key) return spec;
  }
  return nullptr;
}

Error UnknownKey(const OptionTable& table, const std::string& place, const std::string& key) {
  std::vector<std::string> known;
  for (const OptionSpec& spec : table) {
    for (const std::string& name : NamesOf(spec)) {
      if (name.starts_with("--")) known.push_back(name.substr(2));
    }
  }
  const std::string near = Nearest(key, known);
  return BadInput(
      place + ": unknown option " + Quoted(key) +
      (near.empty() ? "; dslaunch --help_all has all options" : ", did you mean '" + near + "'?"));
}

Result<void> AddFlag(const Entry& entry, OptionLayer& layer) {
  const std::string text = entry.value.is_string() ? entry.value.get<std::string>() : "";
  if (text == "true" || text == "True" || text == "TRUE") {
    layer.Add(entry.spec, {entry.name, "", ExitCode::kBadInput});
  } else if (text == "false" || text == "False" || text == "FALSE") {
    layer.values[&entry.spec];  // an empty value overrides the environment
  } else {
    return BadInput(entry.name + " is true or false" +
                    (text.empty() ? "" : ", not " + Quoted(text)));
  }
  return {};
}

// Adds the entries of a list of NAME=VALUE or NAME, or of a map from names to values.
Result<void> AddAll(const Entry& entry, OptionLayer& layer) {
  const auto wrong = [&] {
    return BadInput(entry.name + " is a list of NAME=VALUE or NAME, or a map of names to values");
  };
  if (!entry.value.is_array() && !entry.value.is_object()) return wrong();
  for (const auto& [key, value] : entry.value.items()) {
    if (!value.is_string() && !value.is_null()) return wrong();
    const std::string text = value.is_null() ? "" : value.get<std::string>();
    layer.Add(entry.spec,
              {entry.name, entry.value.is_object() ? key + "=" + text : text, ExitCode::kBadInput});
  }
  return {};
}

Result<void> AddEntry(const Entry& entry, OptionLayer& layer) {
  if (entry.spec.line_only) {
    return BadInput(entry.name + " belongs on the command line");
  }
  if (entry.spec.repeatable) return AddAll(entry, layer);
  if (IsFlag(entry.spec)) return AddFlag(entry, layer);
  if (!entry.value.is_string()) {
    return BadInput(entry.name + (entry.value.is_null() ? " has no value; give one, or remove it"
                                                        : " is one value, such as show: 0,3"));
  }
  layer.Add(entry.spec, {entry.name, entry.value.get<std::string>(), ExitCode::kBadInput});
  return {};
}

// Returns an error if a file that the command line does not name must not set the option.
Result<void> CheckTrust(const OptionSpec& spec, const FlagValue& given, const std::string& path) {
  const std::string remedy = ", so it is not taken from a file that the command line does not name";
  const std::string named = "--run_file " + Truncate(path);
  if (spec.needs_trust != nullptr) {
    return BadInput(given.name + " " + spec.needs_trust + remedy + "; give " +
                    std::string(NameOf(spec)) + " there, or " + named);
  }
  // A NAME without a value copies the value from dslaunch's own environment, so it is accepted.
  const size_t equals = given.text.find('=');
  if (NameOf(spec) != "--env" || equals == std::string::npos) return {};
  const std::string variable = given.text.substr(0, equals);
  if (IsSafeVariable(variable)) return {};
  return BadInput(given.name + ": " + Truncate(variable) + " " + kNotKnownSafe + remedy +
                  "; write '" + Truncate(variable) +
                  "' without a value to take it from this environment, give --env there, or " +
                  named);
}

}  // namespace

Result<LaunchFile> ParseLaunchFile(std::string_view text, const std::string& source,
                                   const OptionTable& table) {
  KeyPlaces places;
  DSL_TRY_ASSIGN(const Json document,
                 ParseYaml(WithoutJsonComments(text), source, Scalars::kText, &places));
  LaunchFile file;
  if (document.is_null()) return file;
  DSL_TRY(CheckSections(document, source));
  file.has_recipe = document.size() > document.count(kLaunchSection);
  const auto launch = document.find(kLaunchSection);
  if (launch == document.end() || launch->is_null()) return file;
  const std::string section_place = source + ":" + places[kLaunchSection];
  if (!launch->is_object()) {
    return BadInput(section_place + ": 'launch' is a map of options, such as num_gpus: 8");
  }
  for (const auto& [key, value] : launch->items()) {
    const auto known = places.find(std::string(kLaunchSection) + "." + key);
    const std::string place = known == places.end() ? section_place : source + ":" + known->second;
    const OptionSpec* spec = FindKey(table, key);
    if (spec == nullptr) return UnknownKey(table, place, key);
    if (file.launch.values.contains(spec)) {
      return BadInput(place + ": " + key + " is given twice, in two spellings; keep one");
    }
    DSL_TRY(AddEntry({*spec, place + ": " + key, value}, file.launch));
  }
  return file;
}

Result<LaunchFile> ReadUnnamedLaunchFile(const std::string& path, const OptionTable& table) {
  DSL_TRY_ASSIGN(const std::string text, ReadUnnamedTextFile(path));
  DSL_TRY_ASSIGN(LaunchFile file, ParseLaunchFile(text, Truncate(path), table));
  for (const auto& [spec, values] : file.launch.values) {
    for (const FlagValue& given : values) DSL_TRY(CheckTrust(*spec, given, path));
  }
  return file;
}

Result<LaunchFile> ReadLaunchFile(const std::string& path, const OptionTable& table) {
  DSL_TRY_ASSIGN(const std::string text, ReadTextFile(path));
  return ParseLaunchFile(text, Truncate(path), table);
}

}  // namespace dslaunch

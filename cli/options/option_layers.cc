#include "cli/options/option_layers.h"

#include <algorithm>
#include <string_view>

#include "cli/options/option_values.h"

namespace dslaunch {
namespace {

// The effective values of an option, and the index of the layer that supplied them.
struct Counting {
  std::vector<FlagValue> values;
  size_t layer = 0;
};
using Merged = std::map<const OptionSpec*, Counting>;

const Counting* Find(const Merged& merged, const char* name) {
  for (const auto& [spec, counting] : merged) {
    if (NameOf(*spec) == name && !counting.values.empty()) return &counting;
  }
  return nullptr;
}

Error ExcludeEachOther(const Exclusion& exclusion, const Counting& one, const Counting& other) {
  const std::string why = exclusion.why;
  return {one.values.front().blame, one.values.front().name + " and " + other.values.front().name +
                                        " exclude each other" + (why.empty() ? "" : ": " + why) +
                                        "; give one of them"};
}

// Removes from `layer`, the lowest layer merged so far, the options that higher layers exclude.
// Returns an error if two options of `layer` exclude each other.
Result<void> Exclude(const std::vector<Exclusion>& exclusions, size_t layer, Merged& merged) {
  for (const Exclusion& exclusion : exclusions) {
    const Counting* one = Find(merged, exclusion.one);
    const Counting* other = Find(merged, exclusion.other);
    if (one == nullptr || other == nullptr) continue;
    if (exclusion.unless != nullptr && Find(merged, exclusion.unless) != nullptr) continue;
    if (one->layer == layer && other->layer == layer) {
      return ExcludeEachOther(exclusion, *one, *other);
    }
    const char* lower = one->layer == layer ? exclusion.one : exclusion.other;
    std::erase_if(merged, [&](const auto& item) { return NameOf(*item.first) == lower; });
  }
  return {};
}

Result<void> ReadOne(const OptionSpec& spec, const FlagValue& given, ParsedFlags& flags) {
  if (spec.refusal != nullptr) {
    return Error{given.blame, given.name + " is not supported: " + spec.refusal};
  }
  try {
    spec.target.read(given, flags);
    flags.given.emplace(NameOf(spec));
    return {};
  } catch (const ValidationError& error) {
    return Error{given.blame, error.what()};
  }
}

}  // namespace

void OptionLayer::Add(const OptionSpec& spec, FlagValue given) {
  std::vector<FlagValue>& all = values[&spec];
  if (!spec.repeatable) all.clear();
  if (spec.target.kind == ValueKind::kFile || spec.target.kind == ValueKind::kFolder)
    given.text = ExpandHome(given.text);
  if (!(spec.may_be_empty && given.text.empty())) all.push_back(std::move(given));
}

Result<OptionLayer> EnvironmentLayer(const OptionTable& table, const char* const* environment) {
  OptionLayer layer;
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    const std::string_view entry = *environment;
    const size_t equals = entry.find('=');
    if (!entry.starts_with("PET_") || equals == std::string_view::npos) continue;
    const std::string variable(entry.substr(0, equals));
    const std::string text(entry.substr(equals + 1));
    const auto spec = std::ranges::find_if(
        table, [&](const OptionSpec& option) { return VariableOf(option) == variable; });
    if (spec == table.end()) continue;
    if (!IsFlag(*spec)) {
      layer.Add(*spec, {variable, text});
      continue;
    }
    try {
      if (ReadWhole<int>(variable, text, INT32_MIN, INT32_MAX) != 0)
        layer.Add(*spec, {variable, ""});
    } catch (const ValidationError&) {
      return Error{ExitCode::kUsage, variable + " must be 1 or 0, not " + Quoted(text)};
    }
  }
  return layer;
}

std::vector<std::string> LaunchWords(const OptionLayer& options) {
  std::vector<std::string> words;
  for (const OptionSpec& spec : LaunchOptionTable()) {
    const auto found = options.values.find(&spec);
    if (found == options.values.end()) continue;
    for (const FlagValue& value : found->second) {
      words.emplace_back(NameOf(spec));
      if (!IsFlag(spec)) words.push_back(value.text);
    }
  }
  return words;
}

Result<void> ReadLayers(const std::vector<OptionLayer>& layers,
                        const std::vector<Exclusion>& exclusions, ParsedFlags& flags) {
  Merged merged;
  for (size_t i = 0; i < layers.size(); ++i) {
    for (const auto& [spec, values] : layers[i].values) {
      const auto [known, is_new] = merged.try_emplace(spec, Counting{values, i});
      if (is_new || !spec->repeatable) continue;
      // If a name occurs twice, the last entry counts, so the values of the higher layer are last.
      std::vector<FlagValue>& all = known->second.values;
      all.insert(all.begin(), values.begin(), values.end());
    }
    DSL_TRY(Exclude(exclusions, i, merged));
  }
  for (const auto& [spec, counting] : merged) {
    for (const FlagValue& given : counting.values) {
      DSL_TRY(ReadOne(*spec, given, flags));
    }
  }
  return {};
}

Result<void> CheckRequirements(const std::vector<Requirement>& requirements,
                               const ParsedFlags& flags) {
  for (const Requirement& requirement : requirements) {
    const bool complete =
        flags.given.contains(requirement.needs) ||
        (requirement.or_needs != nullptr && flags.given.contains(requirement.or_needs));
    if (!flags.given.contains(requirement.option) || complete) continue;
    return Error{ExitCode::kUsage, std::string(requirement.option) + " " + requirement.why};
  }
  return {};
}

}  // namespace dslaunch

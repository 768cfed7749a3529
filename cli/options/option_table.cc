#include "cli/options/option_table.h"

#include <algorithm>
#include <cctype>

#include "cli/options/option_values.h"

namespace dslaunch {

const char* Title(OptionGroup group) {
  switch (group) {
    case OptionGroup::kWhere:
      return "Where";
    case OptionGroup::kProgram:
      return "Program";
    case OptionGroup::kOutput:
      return "Output";
    case OptionGroup::kFailure:
      return "When something fails";
    case OptionGroup::kSsh:
      return "SSH";
    case OptionGroup::kPerNode:
      return "Without SSH: the same command on each node, as with torchrun";
    case OptionGroup::kOther:
      return "Other";
    case OptionGroup::kTranslated:
      return "Of other launchers, for what dslaunch has or its ranks read";
    case OptionGroup::kAccepted:
      return "Accepted for deepspeed and torchrun, without effect";
    case OptionGroup::kRefused:
      return "Refused";
    case OptionGroup::kTrainWhat:
      return "What to train, and on what";
    case OptionGroup::kTrainLength:
      return "How long";
    case OptionGroup::kTrainKeep:
      return "What to keep";
    case OptionGroup::kPredict:
      return "Prediction";
    case OptionGroup::kPredictText:
      return "Text";
    case OptionGroup::kTune:
      return "The search";
    case OptionGroup::kCommand:
      return "Options";
  }
  return "";
}

const char* Name(ValueKind kind) {
  switch (kind) {
    case ValueKind::kFlag:
      return "flag";
    case ValueKind::kText:
      return "text";
    case ValueKind::kNumber:
      return "number";
    case ValueKind::kSeconds:
      return "seconds";
    case ValueKind::kChoice:
      return "choice";
    case ValueKind::kFile:
      return "file";
    case ValueKind::kFolder:
      return "folder";
  }
  return "";
}

std::vector<std::string> NamesOf(const OptionSpec& spec) {
  std::vector<std::string> names;
  for (const std::string_view all : {spec.names, spec.also}) {
    for (size_t begin = 0; begin < all.size();) {
      const size_t end = std::min(all.find(',', begin), all.size());
      names.emplace_back(all.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return names;
}

std::string_view NameOf(const OptionSpec& spec) {
  const std::string_view all = spec.names;
  const size_t begin = all.find("--");
  return begin == std::string_view::npos ? all : all.substr(begin, all.find(',', begin) - begin);
}

std::string VariableOf(const OptionSpec& spec) {
  if (!spec.pet) return "";
  std::string name = "PET_" + std::string(NameOf(spec).substr(2));
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

bool IsFlag(const OptionSpec& spec) { return spec.target.kind == ValueKind::kFlag; }

std::string PlaceholderOf(const OptionSpec& spec) {
  if (*spec.value != '\0' || spec.target.choices == nullptr) return spec.value;
  std::string placeholder;
  for (const std::string& word : spec.target.choices()) {
    placeholder += (placeholder.empty() ? "" : "|") + word;
  }
  return placeholder;
}

std::string HeadingOf(const OptionSpec& spec) {
  std::string heading;
  for (const char c : std::string_view(spec.names)) heading += c == ',' ? ", " : std::string(1, c);
  return IsFlag(spec) ? heading : heading + " " + PlaceholderOf(spec);
}

std::string DescriptionOf(const OptionSpec& spec) {
  if (spec.refusal != nullptr) return spec.refusal;
  const std::string standard = spec.default_value;
  return spec.help + (standard.empty() ? "" : "; default " + standard);
}

std::vector<std::string> ChoicesOf(const OptionSpec& spec) {
  if (spec.target.choices != nullptr) return spec.target.choices();
  const std::string_view all = spec.value;
  std::vector<std::string> choices;
  if (all.find('|') == std::string_view::npos) return choices;
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find('|', begin), all.size());
    const std::string_view word = all.substr(begin, end - begin);
    const auto is_small = [](char c) {
      return c == '-' || c == '_' || std::islower(c) || std::isdigit(c);
    };
    if (!word.empty() && std::islower(word[0]) && std::ranges::all_of(word, is_small)) {
      choices.emplace_back(word);
    }
    begin = end + 1;
  }
  return choices;
}

FoundOption FindOption(const OptionTable& table, std::string_view name) {
  std::string spelt(name);
  if (name.starts_with("--")) std::replace(spelt.begin() + 2, spelt.end(), '-', '_');
  FoundOption beginning;
  for (const OptionSpec& spec : table) {
    for (const std::string& known : NamesOf(spec)) {
      if (known == spelt) return {&spec, {}};
      const bool may_be_cut = (spec.deepspeed || spec.torchrun) && spelt.size() > 2;
      if (!may_be_cut || !known.starts_with("--") || !known.starts_with(spelt)) continue;
      beginning.spec = &spec;
      beginning.candidates.push_back(known);
    }
  }
  if (beginning.candidates.size() <= 1) return {beginning.spec, {}};
  return {nullptr, beginning.candidates};
}

}  // namespace dslaunch

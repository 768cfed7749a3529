#include "cli/options/help_text.h"

#include <algorithm>

#include "base/text/split_lines.h"
#include "cli/options/option_table.h"

namespace dslaunch {
namespace {

constexpr size_t kWidth = 89;
constexpr size_t kTextColumn = 27;
constexpr size_t kIndent = 4;  // indent of the description of a command
constexpr size_t kExampleIndent = 6;

constexpr char kUses[] =
    R"(dslaunch starts one process per slot on one or many nodes, and supervises them.

  dslaunch [options] train | predict [RECIPE] [options]   the built-in trainer
  dslaunch [options] PROGRAM [args...]                    any program or script
)";

constexpr char kEnd[] =
    R"(
Options, spelt with '-' or '_', precede PROGRAM. What follows it is passed on unchanged.
A program whose name is a command of dslaunch is started as ./train.
Examples: dslaunch --help_all; of a command: dslaunch COMMAND --help. Manual: dslaunch help.
)";

// `text` in lines of up to kWidth, each after `indent` blanks.
std::string Wrapped(std::string_view text, size_t indent) {
  std::string result;
  while (!text.empty()) {
    size_t end = text.size();
    if (indent + end > kWidth) {
      const size_t blank = text.rfind(' ', kWidth - indent);
      end = std::min(blank == std::string_view::npos ? text.find(' ') : blank, end);
    }
    result += std::string(indent, ' ') + std::string(text.substr(0, end)) + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

// Lists the commands other than the launch, each family once.
std::string CommandList() {
  const std::string begin = "  dslaunch ";
  std::string result;
  std::string line = begin;
  std::string_view last;
  for (const CommandSpec& command : Commands()) {
    const std::string_view family = FamilyOf(command);
    if (family.empty() || family == "train" || family == "predict" || family == last) continue;
    const std::string bar = last.empty() ? "" : " | ";
    if (line.size() + bar.size() + family.size() + 2 > kWidth) {
      result += line + " |\n";
      line = std::string(begin.size(), ' ') + std::string(family);
    } else {
      line += bar + std::string(family);
    }
    last = family;
  }
  return result + line + "\n";
}

// Returns the entry of an option: its heading, and `text` in the second column.
std::string HelpEntry(const std::string& heading, std::string_view text) {
  std::string result;
  std::string line = "  " + heading;
  if (line.size() + 2 > kTextColumn) {
    result = line + "\n";
    line.clear();
  }
  line.resize(kTextColumn, ' ');
  while (!text.empty()) {
    size_t end = text.size();
    if (kTextColumn + end > kWidth) end = text.rfind(' ', kWidth - kTextColumn);
    result += line.append(text.substr(0, end)) + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
    line.assign(kTextColumn, ' ');
  }
  return result;
}

std::string Groups(const OptionTable& table, bool (*is_shown)(const OptionSpec& spec)) {
  std::string text;
  const char* title = "";
  for (const OptionSpec& spec : table) {
    if (!is_shown(spec)) continue;
    if (title != Title(spec.group)) {
      title = Title(spec.group);
      text += std::string("\n") + title + "\n";
    }
    text += HelpEntry(HeadingOf(spec), DescriptionOf(spec));
  }
  return text;
}

bool IsForLaunchers(const OptionSpec& spec) {
  return spec.group == OptionGroup::kTranslated || spec.group == OptionGroup::kAccepted ||
         spec.group == OptionGroup::kRefused;
}

std::string Examples(const CommandSpec& command) {
  std::string text = "\nExamples\n";
  for (const Example& example : command.examples) {
    text += std::string("  ") + example.command + "\n" +
            Wrapped(example.what + std::string("."), kExampleIndent);
  }
  return text;
}

}  // namespace

std::string HelpText() {
  const auto is_common = [](const OptionSpec& spec) { return spec.common; };
  return kUses + CommandList() + Groups(LaunchOptionTable(), is_common) + kEnd;
}

std::string HelpAllText() {
  const auto is_own = [](const OptionSpec& spec) { return !IsForLaunchers(spec); };
  return kUses + CommandList() + Groups(LaunchOptionTable(), is_own) +
         Examples(Commands().front()) + kEnd;
}

std::string HelpLaunchersText() {
  return "Options that dslaunch takes, or refuses with the remedy, so that command lines of other\n"
         "launchers work.\n" +
         Groups(LaunchOptionTable(), IsForLaunchers);
}

std::string CommandHelpText(const CommandSpec& command) {
  std::string text = UsageOf(command) + "\n" + Wrapped(std::string(command.help) + ".", kIndent);
  for (const std::string_view line : SplitLines(command.details)) text += Wrapped(line, kIndent);
  if (command.options != &LaunchOptionTable())
    text += Groups(*command.options, [](const OptionSpec&) { return true; });
  return text + Examples(command);
}

std::string CommandHelpText(std::string_view family) {
  std::string text;
  for (const CommandSpec* command : CommandsOf(family))
    text += (text.empty() ? "" : "\n") + CommandHelpText(*command);
  return text;
}

}  // namespace dslaunch

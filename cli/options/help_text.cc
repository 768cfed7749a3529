#include "cli/options/help_text.h"

#include <algorithm>
#include <string_view>

#include "base/text/split_lines.h"
#include "cli/options/exit_code_meanings.h"
#include "cli/options/option_table.h"
#include "proto/contract/variable_meanings.h"

namespace dslaunch {
namespace {

constexpr size_t kWidth = 89;
constexpr size_t kTextColumn = 27;
constexpr size_t kIndent = 4;  // blanks before a command's description
constexpr size_t kExampleIndent = 6;

constexpr char kUses[] =
    R"(dslaunch starts one process per slot on one or many nodes, and supervises them.

  dslaunch [options] train | predict | tune [RECIPE] [options]   the built-in trainer
  dslaunch [options] PROGRAM [args...]                           any program or script
)";

constexpr char kEnd[] =
    R"(
Options, spelt with '-' or '_', precede PROGRAM. What follows it is passed on unchanged.
A program whose name is a command of dslaunch is started as ./train.
Examples: dslaunch --help_all; of a command: dslaunch COMMAND --help. Manual: dslaunch help.
)";

// Returns `text` wrapped in lines of at most kWidth characters, each after `indent` blanks.
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

// Returns the list of all commands other than the launch, each family once.
std::string CommandList() {
  const std::string begin = "  dslaunch ";
  std::string result;
  std::string line = begin;
  std::string_view last;
  for (const CommandSpec& command : Commands()) {
    const std::string_view family = FamilyOf(command);
    if (family.empty() || family == "train" || family == "predict" || family == "tune" ||
        family == last)
      continue;
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

// Returns the help entry of an option: `heading`, and `text` in the second column.
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

namespace {

// Escapes `text` for roff, so that no dash becomes a hyphen and no line becomes a macro.
std::string Roff(std::string_view text) {
  std::string roff;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (roff.empty() || roff.back() == '\n')) roff += "\\&";
    roff += c == '-' ? "\\-" : c == '\\' ? "\\e" : std::string(1, c);
  }
  return roff;
}

std::string Bold(std::string_view text) { return "\\fB" + Roff(text) + "\\fR"; }

std::string Section(std::string_view title) { return ".SH " + std::string(title) + "\n"; }

std::string Paragraph(std::string_view text) { return ".PP\n" + Roff(text) + "\n"; }

std::string Item(const std::string& heading, std::string_view text) {
  return ".TP\n" + heading + "\n" + Roff(text) + "\n";
}

std::string OptionItem(const OptionSpec& spec) {
  std::string heading;
  for (const std::string& name : NamesOf(spec)) {
    heading += (heading.empty() ? "" : ", ") + Bold(name);
  }
  if (!IsFlag(spec)) heading += " \\fI" + Roff(PlaceholderOf(spec)) + "\\fR";
  std::string text = DescriptionOf(spec);
  if (spec.pet) text += " [" + VariableOf(spec) + "]";
  return Item(heading, text + ".");
}

std::string Options(const OptionTable& table) {
  std::string text;
  const char* title = "";
  for (const OptionSpec& spec : table) {
    if (title != Title(spec.group)) {
      title = Title(spec.group);
      text += ".SS \"" + Roff(title) + "\"\n";
    }
    text += OptionItem(spec);
  }
  return text;
}

// Returns the description of `command` as roff paragraphs.
std::string Description(const CommandSpec& command) {
  std::string text = Roff(command.help) + ".\n";
  for (const std::string_view line : SplitLines(command.details))
    text += ".br\n" + Roff(line) + "\n";
  return text;
}

std::string CommandSection() {
  std::string text = Section("COMMANDS");
  for (const CommandSpec& command : Commands()) {
    const std::string_view name = command.name;
    if (name.empty()) continue;
    text += ".SS \"" + Roff(UsageOf(command)) + "\"\n" + Description(command);
    const bool has_own_section = name == "train" || name == "predict";
    if (has_own_section || command.options == &LaunchOptionTable()) continue;
    for (const OptionSpec& spec : *command.options) text += OptionItem(spec);
  }
  return text;
}

std::string ExamplesSection() {
  std::string text = Section("EXAMPLES");
  for (const CommandSpec& command : Commands()) {
    for (const Example& example : command.examples)
      text += Item(Bold(example.command), example.what + std::string("."));
  }
  return text;
}

template <size_t count>
std::string Variables(const std::string& title, const VariableMeaning (&variables)[count]) {
  std::string text = ".SS \"" + Roff(title) + "\"\n";
  for (const VariableMeaning& variable : variables)
    text += Item(Bold(variable.name), variable.meaning + std::string("."));
  return text;
}

std::string Environment() {
  return Section("ENVIRONMENT") + Variables("Read by dslaunch", kFrontEndVariables) +
         Variables("Read by dslaunch and on the nodes", kDeviceVariables) +
         Variables("Read on the nodes", kNodeVariables) +
         Variables("Set for every rank", kRankVariables) +
         Variables("Read by the trainer", kTrainerVariables);
}

std::string ExitStatus() {
  std::string text = Section("EXIT STATUS");
  for (const auto& [code, meaning] : kExitCodeMeanings) {
    text += Item(Bold(code), std::string(meaning) + ".");
  }
  return text;
}

}  // namespace

std::string ManPage() {
  std::string page = ".TH DSLAUNCH 1 \"\" \"dslaunch " DSLAUNCH_VERSION "\"\n.nh\n";
  page += Section("NAME") + "dslaunch \\- starts and supervises distributed training jobs\n";
  page += Section("SYNOPSIS");
  for (const char* use :
       {"[options] train [RECIPE] [trainer options]", "[options] predict [RECIPE] [options]",
        "[options] tune [RECIPE] [options]", "[options] PROGRAM [args...]",
        "COMMAND [arguments]"}) {
    page += Bold("dslaunch") + " " + Roff(use) + "\n.br\n";
  }
  page += Section("DESCRIPTION");
  page += Roff(
              "Starts one process per slot on one or many nodes and shows their output. A job ends "
              "as a whole: when one process fails, all are ended, and the first cause is reported. "
              "dslaunch accepts the command lines of deepspeed and torchrun.") +
          "\n";
  page += Paragraph(
      "Options may be spelt with '-' or '_', and those of deepspeed and torchrun may "
      "be abbreviated where that is unambiguous. They must precede PROGRAM: what follows it is "
      "passed to it unchanged. Names in brackets are variables that give an option "
      "its value where neither the command line nor the launch file does.");
  page += Section("OPTIONS") + Options(LaunchOptionTable());
  page += Section("\"OPTIONS OF TRAIN\"") + Options(TrainOptionTable());
  page += Section("\"OPTIONS OF PREDICT\"") + Options(PredictOptionTable());
  page += CommandSection();
  page += ExamplesSection();
  page += Environment();
  page += Section("FILES");
  page += Item(Bold("/job/hostfile"), "The nodes, where no hostfile is given.");
  page += Item(Bold("./dslaunch.yaml"),
               "A recipe, and under 'launch:' options of the command line by their names.");
  page += Item(Bold("~/.local/state/dslaunch/jobs/JOB"),
               "What a job left: the output of each rank, events.jsonl, dslaunch.log. Below "
               "$XDG_STATE_HOME where that is set.");
  page += ExitStatus();
  page += Section("\"SEE ALSO\"") + "ssh(1), ssh_config(5)\n";
  return page;
}

}  // namespace dslaunch

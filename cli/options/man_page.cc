#include <algorithm>
#include <string_view>

#include "base/text/split_lines.h"
#include "cli/options/exit_code_meanings.h"
#include "cli/options/help_text.h"
#include "cli/options/option_table.h"
#include "proto/contract/variable_meanings.h"

namespace dslaunch {
namespace {

// Escapes `text` for roff, so that no dash becomes a hyphen and no line a macro.
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

// Returns the description of `command` in paragraphs.
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
        "[options] PROGRAM [args...]", "COMMAND [arguments]"}) {
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

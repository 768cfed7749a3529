#include "cli/options/nested_launch.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "agent/host/launcher_use.h"
#include "base/text/sanitize.h"
#include "cli/options/command_parser.h"
#include "cli/options/option_table.h"
#include "cli/plan/secrets.h"

namespace dslaunch {
namespace {

using Words = std::vector<std::string>;

// A launcher whose options dslaunch supports.
struct Replaceable {
  LauncherKind kind;
  const char* name;
  bool OptionSpec::*has;  // flag of OptionSpec that marks the launcher's options
};
constexpr Replaceable kReplaceable[] = {
    {LauncherKind::kTorchrun, "torchrun", &OptionSpec::torchrun},
    {LauncherKind::kDeepspeed, "deepspeed", &OptionSpec::deepspeed},
    {LauncherKind::kAccelerate, "accelerate launch", &OptionSpec::accelerate},
};

// Each row lists options that set the same number.
constexpr std::string_view kSynonyms[][4] = {
    {"--num_gpus", "--nproc_per_node", "--slots_per_host", ""},
    {"--num_nodes", "--nnodes", "--num_machines", ""},
    {"--num_proc", "--num_processes", "", ""}};

// Prefixes of the options that set the number of ranks.
constexpr std::string_view kCounts[] = {"--nproc", "--num_gpus", "--num-gpus", "-np",
                                        "-n",      "--num_proc", "--num-proc"};

bool AreSynonyms(std::string_view one, std::string_view other) {
  return one == other || std::ranges::any_of(kSynonyms, [&](const auto& names) {
           return std::ranges::find(names, one) != std::end(names) &&
                  std::ranges::find(names, other) != std::end(names);
         });
}

const OptionSpec& SpecOf(std::string_view name) {
  return *FindOption(LaunchOptionTable(), name).spec;
}

bool Has(const OptionLayer& layer, std::string_view name) {
  return std::ranges::any_of(layer.values,
                             [&](const auto& item) { return NameOf(*item.first) == name; });
}

void Remove(OptionLayer& layer, std::string_view name) {
  std::erase_if(layer.values, [&](const auto& item) { return NameOf(*item.first) == name; });
}

// Adds `inner`, the options of `launcher`, to `options`. An option that both contain is an error
// unless its values are equal.
Result<void> Merge(const std::string& launcher, OptionLayer inner, OptionLayer& options) {
  for (auto& [spec, values] : inner.values) {
    for (FlagValue& value : values) value.name = launcher + "'s " + value.name;
    const auto same = std::ranges::find_if(options.values, [&](const auto& outer) {
      return !outer.second.empty() && AreSynonyms(NameOf(*outer.first), NameOf(*spec));
    });
    if (same == options.values.end() || values.empty() || spec->repeatable) {
      std::vector<FlagValue>& all = options.values[spec];
      all.insert(all.begin(), values.begin(), values.end());
      continue;
    }
    const FlagValue& outer = same->second.back();
    if (outer.text != values.back().text) {
      return WrongUse(outer.name + " " + Truncate(outer.text) + " contradicts " +
                      values.back().name + " " + Truncate(values.back().text) +
                      "; leave one of them out");
    }
  }
  return {};
}

// Reads the options of the launcher at the start of `words`. Returns nullopt if the launcher would
// only print help.
Result<std::optional<LeadingOptions>> ReadOptionsOf(const Replaceable& launcher,
                                                    const Words& words) {
  const std::string name = launcher.name;
  Result<LeadingOptions> read = ReadLeadingOptions({LaunchOptionTable()}, words, 0);
  if (!read.ok()) return WrongUse(name + ": " + read.error().message);
  if (Has(read->options, "--help") || Has(read->options, "--version"))
    return std::optional<LeadingOptions>();
  for (const auto& [spec, values] : read->options.values) {
    if (spec->*launcher.has) continue;
    return WrongUse(name + " has no option " + std::string(NameOf(*spec)) +
                    ", dslaunch has: give it before " + name);
  }
  if (read->next >= words.size()) return WrongUse(name + ": there is no program after its options");
  return std::optional<LeadingOptions>(*std::move(read));
}

// Returns the interpreter with which the launcher would start its ranks, or "" if dslaunch would
// choose the same interpreter.
std::string InterpreterOf(const LauncherUse& use, const std::string& program,
                          const std::function<bool(const std::string&)>& has_program) {
  if (!use.python.empty()) {
    return use.python == "python" || use.python == "python3" ? "" : use.python;
  }
  const size_t slash = program.rfind('/');
  if (slash == std::string::npos || !has_program) return "";
  std::string python = program.substr(0, slash + 1) + "python3";
  return has_program(python) ? python : "";
}

// Adds the variables that the launcher would set in its ranks. Variables of the command line
// override the added variables.
void AddVariables(Words variables, OptionLayer& inner) {
  const OptionSpec& env = SpecOf("--env");
  for (std::string& variable : variables) inner.Add(env, {"--env", std::move(variable)});
}

// Chooses accelerate's configuration: the file of --config_file, or the default file if
// --config_file is not given and the default file exists.
void ChooseAccelerateConfig(bool has_default, const OptionLayer& outer, OptionLayer& inner) {
  const OptionSpec& config = SpecOf("--accelerate_config");
  const auto file = inner.values.find(&SpecOf("--config_file"));
  if (file != inner.values.end()) {
    inner.values[&config] = std::move(file->second);
    inner.values.erase(file);
  } else if (has_default && !Has(outer, "--accelerate_config")) {
    inner.Add(config, {"default_config.yaml", "default"});
  }
}

std::string NoticeOf(const std::string& launcher, Words line, const Words& program) {
  line.insert(line.begin(), "dslaunch");
  line.push_back(program.front());
  std::string text = CommandLine(MaskedArguments(line));
  if (program.size() > 1) text += " ...";
  return launcher + " is not started: dslaunch starts " + Quoted(program.front()) +
         " in its place, as by: " + text + " (--nested starts " + launcher + " in each rank)";
}

Error Refusal(const LauncherUse& use, const Words& argv, OptionLayer options) {
  const auto counts_ranks = [](const std::string& word) {
    return std::ranges::any_of(kCounts,
                               [&](std::string_view name) { return word.starts_with(name); });
  };
  const bool counts = use.kind != LauncherKind::kOther &&
                      std::any_of(argv.begin() + static_cast<std::ptrdiff_t>(use.arguments),
                                  argv.end(), counts_ranks);
  for (const char* name : {"--num_gpus", "--nproc_per_node", "--num_proc"}) {
    if (counts) Remove(options, name);  // the command line already sets the number of ranks
  }
  Words words = LaunchWords(options);
  words.insert(words.begin(), "dslaunch");
  if (use.is_wrapped) {
    words.insert(words.begin(), argv.begin(),
                 argv.begin() + static_cast<std::ptrdiff_t>(use.begin));
  }
  return WrongUse(
      LauncherRefusal(use, CommandLine(MaskedArguments(words)) + " " + LineInPlaceOf(use, argv)));
}

}  // namespace

Result<std::optional<NestedLaunch>> ReplaceNestedLauncher(const OptionLayer& given,
                                                          const Words& program,
                                                          const NestedLaunchContext& context) {
  Words argv = program;
  if (Has(given, "--module")) argv.insert(argv.begin(), {"python3", "-m"});
  const std::optional<LauncherUse> use = FindLauncher(argv);
  if (!use) return std::optional<NestedLaunch>();
  OptionLayer options = given;
  // These options apply to the launcher, not to the launcher's program, so they are removed.
  for (const char* form : {"--module", "--no_python"}) Remove(options, form);
  const auto launcher = std::ranges::find(kReplaceable, use->kind, &Replaceable::kind);
  if (launcher == std::end(kReplaceable) || use->is_wrapped) return Refusal(*use, argv, options);

  const Words arguments(argv.begin() + static_cast<std::ptrdiff_t>(use->arguments), argv.end());
  DSL_TRY_ASSIGN(std::optional<LeadingOptions> read, ReadOptionsOf(*launcher, arguments));
  if (!read) return std::optional<NestedLaunch>();
  NestedLaunch launch;
  launch.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(read->next),
                        arguments.end());
  Words variables = use->variables;
  const std::string python = InterpreterOf(*use, argv[use->begin], context.has_program);
  if (!python.empty()) variables.push_back("PYTHON_EXEC=" + python);
  AddVariables(std::move(variables), read->options);
  if (use->kind == LauncherKind::kAccelerate)
    ChooseAccelerateConfig(context.has_accelerate_default, options, read->options);
  DSL_TRY(Merge(launcher->name, std::move(read->options), options));
  launch.replaces_torchrun = use->kind == LauncherKind::kTorchrun;
  launch.notice = NoticeOf(launcher->name, LaunchWords(options), launch.program);
  launch.options = std::move(options);
  return std::optional<NestedLaunch>(std::move(launch));
}

}  // namespace dslaunch

#include "cli/options/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>

#include "base/count.h"
#include "base/harmless_text.h"
#include "base/suggest.h"
#include "cli/options/help_text.h"
#include "cli/options/job_command.h"
#include "cli/options/option_draft.h"
#include "cli/options/option_layers.h"
#include "cli/options/option_table.h"
#include "cli/options/option_values.h"
#include "cli/options/run_file.h"
#include "cli/plan/recipe.h"

namespace dslaunch {
namespace {

constexpr char kVersionText[] = "dslaunch " DSLAUNCH_VERSION "\n";

Error Usage(const std::string& what) {
  return {ExitCode::kUsage, what + (what.back() == '?' ? " See" : "; see") + " dslaunch --help"};
}

// The options of a part of the command line, for CLI11.
void AddOptions(const OptionTable& table, CLI::App& app) {
  app.set_help_flag();
  for (const OptionSpec& spec : table) {
    CLI::Option* option = IsFlag(spec) ? app.add_flag(spec.names)
                                       : app.add_option(spec.names)->expected(1)->take_all();
    option->description(spec.help)->group(Title(spec.group));
  }
}

// The arguments up to the first that is no option. CLI11 has a mode for this (prefix_command), but
// it mixes unknown options with the program's own, so the border is found here, and CLI11 reads
// what lies before it.
struct Split {
  std::vector<std::string> options;  // names, each followed by its value if it takes one
  size_t next = 0;                   // the first argument not taken
};

// "--num-nodes=2" -> "--num_nodes" and "=2".
std::pair<std::string, std::string> SplitName(const std::string& argument) {
  if (argument.rfind("--", 0) != 0) return {argument.substr(0, 2), argument.substr(2)};
  const size_t equals = std::min(argument.find('='), argument.size());
  std::string name = argument.substr(0, equals);
  std::replace(name.begin() + 2, name.end(), '-', '_');
  return {name, argument.substr(equals)};
}

// One part of the command line: the options that count there, and where those of the other parts
// belong.
struct Part {
  struct Other {
    const OptionTable& table;
    const char* place;
  };
  const OptionTable& table;
  std::vector<Other> others;
};

Error UnknownOption(const Part& part, const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  std::string word = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  std::replace(word.begin(), word.end(), '-', '_');
  for (const Part::Other& other : part.others) {
    if (!argument.starts_with("--")) break;
    if (FindOption(other.table, SplitName(argument).first).spec != nullptr) {
      return Usage("option " + Quoted(name) + " belongs " + other.place);
    }
  }
  std::vector<std::string> known;
  for (const OptionSpec& spec : part.table) {
    for (const std::string& option : NamesOf(spec)) {
      if (option.starts_with("--")) known.push_back(option.substr(2));
    }
  }
  const std::string near = Nearest(word, known);
  if (near.empty()) return Usage("option " + Quoted(name) + " is not supported");
  return Usage("unknown option " + Quoted(name) + ", did you mean --" + near + "?");
}

// "-hostfile" is no -h with something after it.
bool LacksADash(const OptionTable& table, const std::string& argument) {
  if (argument.size() <= 2 || argument[1] == '-') return false;
  const std::string name = "-" + SplitName("-" + argument).first.substr(1);
  return std::ranges::any_of(table, [&](const OptionSpec& spec) {
    const std::vector<std::string> names = NamesOf(spec);
    return std::ranges::find(names, name) != names.end();
  });
}

Result<const OptionSpec*> Identify(const Part& part, const std::string& argument) {
  const FoundOption found = FindOption(part.table, SplitName(argument).first);
  if (!found.candidates.empty()) {
    std::string list;
    for (const std::string& name : found.candidates) list += (list.empty() ? "" : ", ") + name;
    return Usage("option " + Quoted(SplitName(argument).first) + " could be one of " + list +
                 "; write it out");
  }
  if (found.spec == nullptr || LacksADash(part.table, argument)) {
    return UnknownOption(part, argument);
  }
  return found.spec;
}

Result<Split> SplitOptions(const Part& part, const std::vector<std::string>& arguments,
                           size_t begin) {
  Split split;
  for (split.next = begin; split.next < arguments.size(); ++split.next) {
    std::string argument = arguments[split.next];
    if (argument == "--") {
      ++split.next;
      break;
    }
    if (argument.size() < 2 || argument.front() != '-') break;
    DSL_TRY_ASSIGN(const OptionSpec* spec, Identify(part, argument));
    auto [name, attached] = SplitName(argument);
    const bool is_short = !name.starts_with("--");
    while (IsFlag(*spec) && is_short && !attached.empty() && attached.front() != '=') {
      split.options.emplace_back(NameOf(*spec));  // -qm is -q -m
      argument = "-" + attached;
      DSL_TRY_ASSIGN(spec, Identify(part, argument));
      std::tie(name, attached) = SplitName(argument);
    }
    const std::string full(NameOf(*spec));
    split.options.push_back(full);
    if (IsFlag(*spec)) {
      if (!attached.empty()) return Usage(full + " takes no value");
      continue;
    }
    std::string value = attached.substr(attached.rfind('=', 0) == 0 ? 1 : 0);
    if (attached.empty()) {
      const auto is_option = [](const std::string& word) {
        return word.starts_with("--") && word.find(' ') == std::string::npos;
      };
      if (split.next + 1 == arguments.size() || is_option(arguments[split.next + 1])) {
        return Usage(full + " needs a value");
      }
      value = arguments[++split.next];
    }
    split.options.push_back(std::move(value));
  }
  return split;
}

// Has CLI11 read the options; its exceptions end here.
Result<OptionLayer> ReadByCli(const OptionTable& table, std::vector<std::string> options) {
  CLI::App app;
  AddOptions(table, app);
  try {
    std::reverse(options.begin(), options.end());  // as CLI11 wants them
    app.parse(std::move(options));
  } catch (const CLI::Error& error) {
    return Usage(error.what());
  }
  OptionLayer layer;
  for (const OptionSpec& spec : table) {
    const std::string name(NameOf(spec));
    const CLI::Option* option = app.get_option(name);
    if (option->count() == 0) continue;
    if (IsFlag(spec)) layer.Add(spec, {name, ""});
    for (const std::string& value : option->results()) {
      if (!IsFlag(spec)) layer.Add(spec, {name, value});
    }
  }
  return layer;
}

// What follows `train` or `predict` (`word`): one recipe and options, in any order.
Result<OptionLayer> ParseTask(const std::string& word, const Part& part,
                              const std::vector<std::string>& arguments, size_t begin,
                              std::optional<std::string>& recipe) {
  std::vector<std::string> options;
  while (true) {
    DSL_TRY_ASSIGN(const Split split, SplitOptions(part, arguments, begin));
    options.insert(options.end(), split.options.begin(), split.options.end());
    if (split.next == arguments.size()) break;
    if (recipe) {
      return Usage(word + " takes one recipe, but got " + Quoted(*recipe) + " and " +
                   Quoted(arguments[split.next]));
    }
    recipe = arguments[split.next];
    begin = split.next + 1;
  }
  return ReadByCli(part.table, std::move(options));
}

// The file whose `launch` counts: the one that --run_file names, else the recipe, else
// ./dslaunch.yaml. Empty: none.
std::string RunFilePath(const OptionLayer& line, const std::optional<std::string>& recipe,
                        const Surroundings& surroundings) {
  for (const auto& [spec, values] : line.values) {
    if (NameOf(*spec) == "--run_file" && !values.empty()) return values.back().text;
  }
  if (surroundings.folder.empty()) return "";
  const std::filesystem::path path =
      std::filesystem::path(surroundings.folder) / recipe.value_or(kDefaultRecipeFile);
  std::error_code error;
  return std::filesystem::is_regular_file(path, error) ? path.string() : "";
}

// What the user did not type and should know of.
void SayWhatCounts(const OptionLayer& line, const RunFile& file, const std::string& path,
                   Draft& draft) {
  std::vector<std::string>& notices = draft.options.notices;
  for (const auto& [spec, values] : line.values) {
    if (spec->may_be_empty && values.empty()) {
      notices.push_back(std::string(NameOf(*spec)) + " is empty, as if it were not given");
    }
  }
  if (draft.run_file || file.launch.values.empty()) return;
  std::vector<std::string> names;
  for (const auto& [spec, values] : file.launch.values) names.emplace_back(NameOf(*spec));
  notices.push_back(Excerpt(path) + " gives " + NameList(names, ", "));
}

// Options that contradict each other. Sets the task.
Result<void> CheckTrain(Draft& draft) {
  TrainOptions& train = draft.options.train;
  if (train.steps && train.epochs) {
    return Usage("--steps and --epochs exclude each other; give one of them");
  }
  if (draft.eval_only + draft.plan_memory + draft.plan_pipeline + draft.compare_precision > 1) {
    return Usage(
        "--eval_only, --plan_memory, --plan_pipeline and --compare_precision exclude each other; "
        "give one of them");
  }
  if (draft.compare_precision) train.task = TrainOptions::Task::kComparePrecision;
  if (draft.plan_memory) train.task = TrainOptions::Task::kPlanMemory;
  if (draft.plan_pipeline) train.task = TrainOptions::Task::kPlanPipeline;
  if (train.pipeline_svg && !draft.plan_pipeline) {
    return Usage("--pipeline_svg is where --plan_pipeline draws its picture; give that too");
  }
  if (!draft.eval_only) return {};
  train.task = TrainOptions::Task::kEvaluate;
  for (const char* name : {"--steps", "--epochs", "--save_every", "--async_save",
                           "--load_module_only", "--time_limit"}) {
    if (!draft.given.contains(name)) continue;
    return Usage(std::string("--eval_only trains nothing; leave ") + name + " out");
  }
  return {};
}

LaunchOptions TextOnly(LaunchOptions::Mode mode, std::string text) {
  LaunchOptions options;
  options.mode = mode;
  options.text = std::move(text);
  return options;
}

// The mode of a command of dslaunch's own that parses what follows it.
std::optional<LaunchOptions::Mode> CommandMode(const std::string& word) {
  using Mode = LaunchOptions::Mode;
  if (IsJobCommand(word)) return Mode::kJobCommand;
  if (word == "checkpoint") return Mode::kCheckpointCommand;
  if (word == "hostfile") return Mode::kHostfileCommand;
  if (word == "doctor") return Mode::kDoctor;
  if (word == "completion") return Mode::kCompletion;
  return std::nullopt;
}

// What is wrong on the command line ends with where to read on.
template <class T>
Result<T> WithWayOut(Result<T> result) {
  if (result.ok() || result.error().code != ExitCode::kUsage) return result;
  return Usage(result.error().message);
}

// Help and version, which nothing else may stand in the way of.
std::optional<LaunchOptions> AskedForText(const OptionLayer& line, const OptionLayer& task,
                                          const std::string& word) {
  const auto has = [](const OptionLayer& layer, std::string_view name) {
    return std::ranges::any_of(layer.values,
                               [&](const auto& item) { return NameOf(*item.first) == name; });
  };
  using Mode = LaunchOptions::Mode;
  if (has(line, "--help")) return TextOnly(Mode::kHelp, HelpText());
  if (has(line, "--help_all")) return TextOnly(Mode::kHelp, HelpAllText());
  if (has(line, "--version")) return TextOnly(Mode::kVersion, kVersionText);
  if (!has(task, "--help")) return std::nullopt;
  return TextOnly(Mode::kHelp, word == "predict" ? PredictHelpText() : TrainHelpText());
}

// Where `train` and `predict` get their recipe from when they name none.
void ChooseRecipe(const RunFile& file, const std::string& path, Draft& draft) {
  std::optional<std::string>& recipe = draft.options.train.recipe;
  if (recipe || path.empty()) return;
  if (file.has_recipe) {
    if (draft.run_file) recipe = path;
    return;
  }
  recipe = kDefaultRecipe;
  draft.options.notices.push_back("no recipe named, and none in " + Excerpt(path) +
                                  ": taking the built-in " + *recipe);
}

}  // namespace

Result<LaunchOptions> ParseOptions(int argc, const char* const* argv,
                                   const Surroundings& surroundings) {
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  const OptionTable& table = LaunchOptionTable();
  const Part::Other after_train = {TrainOptionTable(), "after 'train'"};
  const Part::Other after_predict = {PredictOptionTable(), "after 'predict'"};
  DSL_TRY_ASSIGN(const Split split,
                 SplitOptions({table, {after_train, after_predict}}, arguments, 0));
  DSL_TRY_ASSIGN(const OptionLayer line, ReadByCli(table, split.options));
  const bool has_word = split.next < arguments.size();
  const std::string first = has_word ? arguments[split.next] : "";
  if (const std::optional<LaunchOptions::Mode> mode = CommandMode(first)) {
    if (split.next > 0) {
      if (*mode == LaunchOptions::Mode::kDoctor) {
        return Usage("options of 'doctor' come behind it: dslaunch doctor -H FILE");
      }
      return Usage(Quoted(first) + " takes no launch options; a program of that name is ./" +
                   first);
    }
    LaunchOptions options;
    options.mode = *mode;
    options.program = arguments;
    return options;
  }

  Draft draft;
  LaunchOptions& options = draft.options;
  OptionLayer task;
  const bool predicts = first == "predict";
  if (first == "train" || predicts) {
    options.mode = LaunchOptions::Mode::kTrain;
    if (predicts) options.train.task = TrainOptions::Task::kPredict;
    const Part part = {predicts ? PredictOptionTable() : TrainOptionTable(),
                       {{table, predicts ? "before 'predict'" : "before 'train'"},
                        predicts ? after_train : after_predict}};
    DSL_TRY_ASSIGN(task, ParseTask(first, part, arguments, split.next + 1, options.train.recipe));
  }
  if (const std::optional<LaunchOptions> text = AskedForText(line, task, first)) return *text;

  const std::string path = RunFilePath(line, options.train.recipe, surroundings);
  RunFile file;
  if (!path.empty()) {
    DSL_TRY_ASSIGN(file, ReadRunFile(path, table));
  }
  DSL_TRY_ASSIGN(const OptionLayer variables, EnvironmentLayer(table, surroundings.environment));
  DSL_TRY(WithWayOut(ReadLayers({line, file.launch, variables}, LaunchExclusions(), draft)));
  DSL_TRY(WithWayOut(ReadLayers({task}, {}, draft)));
  SayWhatCounts(line, file, path, draft);
  if (!has_word && draft.run_file && file.has_recipe) options.mode = LaunchOptions::Mode::kTrain;
  if (options.mode == LaunchOptions::Mode::kTrain) {
    DSL_TRY(CheckTrain(draft));
    ChooseRecipe(file, path, draft);
  } else if (!has_word) {
    return Usage("nothing to run: give 'train' or a program");
  } else if (first.empty()) {
    return Usage("the program's name is empty");
  } else if (first.ends_with(".yaml") || first.ends_with(".yml")) {
    return Usage(Quoted(first) + " is no program; a run file is started with --run_file " +
                 Excerpt(first) + ", a recipe with 'train " + Excerpt(first) + "'");
  } else {
    options.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(split.next),
                           arguments.end());
  }
  return WithWayOut(PutTogether(std::move(draft)));
}

}  // namespace dslaunch

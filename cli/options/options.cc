#include "cli/options/options.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <tuple>
#include <utility>

#include "base/count.h"
#include "base/text/sanitize.h"
#include "base/text/size_text.h"
#include "cli/options/command_parser.h"
#include "cli/options/help_text.h"
#include "cli/options/job_command.h"
#include "cli/options/launch_file.h"
#include "cli/options/nested_launch.h"
#include "cli/options/option_layers.h"
#include "cli/options/option_table.h"
#include "cli/options/parsed_flags.h"
#include "cli/plan/accelerate_config.h"
#include "cli/plan/recipe.h"

namespace dslaunch {
namespace {

Error Usage(const std::string& what) { return UsageError(what, "dslaunch --help"); }

// The file whose `launch` section supplies options.
struct LaunchFileChoice {
  std::string path;       // path of the file; empty if no file is used
  bool is_named = false;  // whether the command line names the file
};

// Returns the file of --run_file, else the file of the recipe, else ./dslaunch.yaml.
LaunchFileChoice ChooseLaunchFile(const OptionLayer& line, const std::optional<std::string>& recipe,
                                  const ParseContext& context) {
  for (const auto& [spec, values] : line.values) {
    if (NameOf(*spec) == "--run_file" && !values.empty()) return {values.back().text, true};
  }
  if (context.folder.empty()) return {};
  const std::filesystem::path path =
      std::filesystem::path(context.folder) / recipe.value_or(kDefaultRecipeFile);
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  return {path.string(), recipe && NamesRecipeFile(*recipe)};
}

// Adds notices about empty options, which are ignored, and about the options that `file` supplies,
// unless --run_file names the file.
void NoteIgnoredSections(const OptionLayer& line, const LaunchFile& file, const std::string& path,
                         ParsedFlags& flags) {
  std::vector<std::string>& notices = flags.options.notices;
  for (const auto& [spec, values] : line.values) {
    if (spec->may_be_empty && values.empty()) {
      notices.push_back(std::string(NameOf(*spec)) + " is empty and is ignored");
    }
  }
  if (flags.launch_file || file.launch.values.empty()) return;
  std::vector<std::string> names;
  for (const auto& [spec, values] : file.launch.values) names.emplace_back(NameOf(*spec));
  notices.push_back(Truncate(path) + " gives " + NameList(names, ", "));
}

// Sets the task of the trainer from the flags that select one.
Result<void> DecideTask(ParsedFlags& flags) {
  TrainOptions& train = flags.options.train;
  if (flags.compare_precision) train.task = TrainOptions::Task::kComparePrecision;
  if (flags.plan_memory) train.task = TrainOptions::Task::kPlanMemory;
  if (flags.plan_pipeline) train.task = TrainOptions::Task::kPlanPipeline;
  if (!flags.eval_only) return {};
  train.task = TrainOptions::Task::kEvaluate;
  for (const char* name :
       {"--steps", "--epochs", "--save_every", "--async_save", "--memory_checkpoint",
        "--load_module_only", "--time_limit", "--export_hf"}) {
    if (!flags.given.contains(name)) continue;
    return Usage(std::string("--eval_only trains nothing; leave ") + name + " out");
  }
  return {};
}

// Configures a single process, which plans for all ranks.
void PlanInOneProcess(LaunchOptions& options) {
  options.train.ranks_per_node = options.num_gpus;
  options.num_nodes = options.num_gpus = 1;
  options.min_nodes = options.max_nodes = std::nullopt;
  options.min_ranks = options.max_ranks = std::nullopt;
  options.slots_from = std::nullopt;
}

// Adds a notice that prints the time limit with its unit, because other tools count minutes.
void NoteTimeLimit(LaunchOptions& options) {
  const std::string option = "--time_limit: ";
  if (options.time_limit_ms > 0) {
    options.notices.push_back(option + "the job is ended " + DurationText(options.time_limit_ms) +
                              " after the start of its ranks");
  }
  if (options.train.time_limit_s) {
    const int64_t ms = std::llround(*options.train.time_limit_s * 1000);
    options.notices.push_back(option + "the training saves and ends " + DurationText(ms) +
                              " after its start");
  }
}

LaunchOptions HelpOnly(std::string text) {
  LaunchOptions options;
  options.mode = LaunchOptions::Mode::kHelp;
  options.text = std::move(text);
  return options;
}

LaunchOptions VersionOnly(bool json) {
  LaunchOptions options;
  options.mode = LaunchOptions::Mode::kVersion;
  options.json = json;
  return options;
}

// Runs `dslaunch version`, or returns the help of that command.
Result<LaunchOptions> VersionCommand(const std::vector<std::string>& words) {
  DSL_TRY_ASSIGN(const CommandSpec* command, FindCommand("version", words));
  DSL_TRY_ASSIGN(const std::optional<ParsedFlags> flags, ParseCommand(*command, words, 1));
  if (!flags) return HelpOnly(CommandHelpText(*command));
  return VersionOnly(flags->options.json);
}

bool Has(const OptionLayer& layer, std::string_view name) {
  return std::ranges::any_of(layer.values,
                             [&](const auto& item) { return NameOf(*item.first) == name; });
}

// Rejects programs named like planned commands, because a later version would run the command
// instead of the program.
Result<void> CheckReserved(const std::string& program, const OptionLayer& line) {
  constexpr std::string_view kReserved[] = {"import", "convert"};
  for (const char* form : {"--module", "--no_python", "--run_path"}) {
    if (Has(line, form)) return {};  // the word names a program of the user
  }
  if (std::ranges::find(kReserved, program) == std::end(kReserved)) return {};
  return Usage(Quoted(program) +
               " is reserved for a command of dslaunch; start a program of that name by its path, "
               "such as ./" +
               program);
}

// Adds a hint to run the help command to an error about the command line.
template <class T>
Result<T> WithHint(Result<T> result) {
  if (result.ok() || result.error().code != ExitCode::kUsage) return result;
  return Usage(result.error().message);
}

// Rejects a mistyped command, because otherwise every node would search for a program of that name.
Result<void> CheckForMistypedCommand(const std::string& program, const ParsedFlags& flags,
                                     const ParseContext& context) {
  if (flags.module || flags.no_python || flags.run_path || !context.has_program) return {};
  // A script or a path is not a mistyped command.
  if (program.find_first_of("./") != std::string::npos) return {};
  const auto [meant, only_command] = FindMeantCommand(program);
  if (meant.empty()) return {};
  if (only_command) {
    return Usage(Quoted(program) + " is no command of dslaunch, did you mean dslaunch " + meant +
                 "?");
  }
  if (context.has_program(program)) return {};
  return Usage(Quoted(program) +
               " is no command of dslaunch, and no program in PATH on this machine (one that is "
               "only on the nodes needs its path); did you mean dslaunch " +
               meant + "?");
}

// Rejects words that cannot be names of programs.
Result<void> CheckProgramName(const std::string& name, const ParsedFlags& flags,
                              const ParseContext& context) {
  if (name.empty()) return Usage("the program's name is empty");
  if (name.ends_with(".yaml") || name.ends_with(".yml")) {
    return Usage(Quoted(name) + " is not a program; start a launch file with --run_file " +
                 Truncate(name) + ", a recipe with 'train " + Truncate(name) + "'");
  }
  return CheckForMistypedCommand(name, flags, context);
}

// Rejects ':' followed by options. mpirun would start another program there, which dslaunch does
// not support.
Result<void> CheckOneProgram(const std::vector<std::string>& program) {
  constexpr std::string_view kMpirunOptions[] = {"-n", "--n", "-np", "--np", "-c", "-H", "-host"};
  for (size_t i = 1; i + 1 < program.size(); ++i) {
    const std::string& next = program[i + 1];
    if (program[i] != ":" || std::ranges::find(kMpirunOptions, next) == std::end(kMpirunOptions))
      continue;
    return Usage(
        "':' before " + next +
        ": all ranks run one program; start a script that chooses by $RANK, such as: sh "
        "-c 'if [ $RANK = 0 ]; then exec ./a; else exec ./b; fi' (--nested passes ':' to " +
        "the program)");
  }
  return {};
}

NestedLaunchContext NestedContext(const ParseContext& context) {
  std::vector<std::string> environment;
  for (const char* const* entry = context.environment; entry != nullptr && *entry != nullptr;
       ++entry)
    environment.emplace_back(*entry);
  return {context.has_program, !DefaultAccelerateConfig(environment).empty()};
}

// Reads the program from words[begin]. If the program is a launcher, replaces it by the program
// that the launcher would start, and adds the launcher's options to `line`.
Result<void> ReadProgram(const std::vector<std::string>& words, size_t begin,
                         const ParseContext& context, OptionLayer& line,
                         std::vector<std::string>& program, ParsedFlags& flags) {
  program.assign(words.begin() + static_cast<std::ptrdiff_t>(begin), words.end());
  if (program.empty() || Has(line, "--nested")) return {};
  DSL_TRY(CheckOneProgram(program));
  DSL_TRY_ASSIGN(std::optional<NestedLaunch> nested,
                 WithHint(ReplaceNestedLauncher(line, program, NestedContext(context))));
  if (!nested) return CheckReserved(program.front(), line);
  line = std::move(nested->options);
  program = std::move(nested->program);
  flags.replaces_torchrun = nested->replaces_torchrun;
  flags.options.notices.push_back(std::move(nested->notice));
  return {};
}

// Returns the mode of the command `word` if that command parses its own words, else nullopt.
std::optional<LaunchOptions::Mode> CommandMode(const std::string& word) {
  using Mode = LaunchOptions::Mode;
  if (IsJobCommand(word)) return Mode::kJobCommand;
  if (word == "checkpoint") return Mode::kCheckpointCommand;
  if (word == "data") return Mode::kDataCommand;
  if (word == "hostfile") return Mode::kHostfileCommand;
  if (word == "recipe") return Mode::kRecipeCommand;
  if (word == "manifest") return Mode::kManifestCommand;
  if (word == "doctor") return Mode::kDoctor;
  if (word == "completion") return Mode::kCompletion;
  if (word == "help") return Mode::kHelpTopic;
  if (word == "version") return Mode::kVersion;
  return std::nullopt;
}

// Returns the help or version text if the command line requests one, even if the rest of the line
// is wrong.
std::optional<LaunchOptions> AskedForText(const OptionLayer& line, const OptionLayer& task,
                                          const std::string& word) {
  if (Has(line, "--help")) return HelpOnly(HelpText());
  if (Has(line, "--help_all")) return HelpOnly(HelpAllText());
  if (Has(line, "--help_launchers")) return HelpOnly(HelpLaunchersText());
  if (Has(line, "--version")) return VersionOnly(Has(line, "--json"));
  if (!Has(task, "--help")) return std::nullopt;
  return HelpOnly(CommandHelpText(word));
}

// Chooses the recipe of `train` and `predict` if the command line does not name a recipe.
void ChooseRecipe(const LaunchFile& file, const std::string& path, ParsedFlags& flags) {
  std::optional<std::string>& recipe = flags.options.train.recipe;
  if (recipe || path.empty()) return;
  if (file.has_recipe) {
    if (flags.launch_file) recipe = path;
    return;
  }
  recipe = kDefaultRecipe;
  flags.options.notices.push_back("no recipe named, and none in " + Truncate(path) +
                                  ": taking the built-in " + *recipe);
}

// Returns the options of a command such as `ps` that is not a launch. `before` is the number of
// arguments in front of the command's name.
Result<LaunchOptions> CommandOptions(LaunchOptions::Mode mode, size_t before,
                                     const std::vector<std::string>& arguments) {
  if (before > 0) {
    if (mode == LaunchOptions::Mode::kDoctor)
      return Usage("options of 'doctor' come after it: dslaunch doctor -H FILE");
    const std::string& name = arguments[before];
    return Usage(Quoted(name) + " takes no launch options; a program of that name is ./" + name);
  }
  if (mode == LaunchOptions::Mode::kVersion) return VersionCommand(arguments);
  LaunchOptions options;
  options.mode = mode;
  options.program = arguments;
  return options;
}

// Returns whether the first word names the user's own program: `-m train` runs a module train.py.
bool NamesProgram(const OptionLayer& line) {
  return Has(line, "--module") || Has(line, "--no_python") || Has(line, "--run_path") ||
         Has(line, "--nested");
}

// Reads `bench COMMAND ...`, which begins at `arguments[first]`, into `options`. Returns the
// options that print the help if the words request it, else nullopt.
Result<std::optional<LaunchOptions>> ReadBench(const std::vector<std::string>& arguments,
                                               size_t first, LaunchOptions& options) {
  const std::vector<std::string> words(arguments.begin() + static_cast<std::ptrdiff_t>(first),
                                       arguments.end());
  DSL_TRY_ASSIGN(const CommandSpec* command, FindCommand("bench", words));
  if (command == nullptr) return std::optional(HelpOnly(CommandHelpText("bench")));
  DSL_TRY_ASSIGN(const std::optional<ParsedFlags> read, ParseCommand(*command, words, 2));
  if (!read) return std::optional(HelpOnly(CommandHelpText(*command)));
  options.runs_trainer = true;
  options.program = {"dslaunch-train", "bench", "comm"};
  options.program.insert(options.program.end(), read->trainer_words.begin(),
                         read->trainer_words.end());
  return std::optional<LaunchOptions>();
}

// A task of the trainer. Its name precedes the recipe on the command line.
struct TaskWord {
  const char* name;
  const OptionTable& (*table)();
};
constexpr TaskWord kTaskWords[] = {
    {"train", TrainOptionTable}, {"predict", PredictOptionTable}, {"tune", TuneOptionTable}};

// Returns the sections of options that follow the tasks other than `name`.
std::vector<LinePart::Other> AfterTasks(std::string_view name = "") {
  std::vector<LinePart::Other> others;
  for (const TaskWord& task : kTaskWords) {
    if (task.name == name) continue;
    others.push_back({task.table(), "after '" + std::string(task.name) + "'"});
  }
  return others;
}

// Returns the task that arguments[word] names; nullptr for any other word, and for `tune run`,
// which is a command of torchtune.
const TaskWord* FindTask(const std::vector<std::string>& arguments, size_t word) {
  if (word >= arguments.size()) return nullptr;
  const bool torchtune =
      arguments[word] == "tune" && word + 1 < arguments.size() && arguments[word + 1] == "run";
  const auto found = std::ranges::find(kTaskWords, arguments[word],
                                       [](const TaskWord& task) { return std::string(task.name); });
  return torchtune || found == std::end(kTaskWords) ? nullptr : found;
}

// Reads the options and the recipe that follow the name of a task, `arguments[word]`.
Result<OptionLayer> ReadTrainWords(const std::vector<std::string>& arguments, size_t word,
                                   const TaskWord& task, LaunchOptions& options) {
  const std::string name = task.name;
  options.mode = LaunchOptions::Mode::kTrain;
  if (name == "predict") options.train.task = TrainOptions::Task::kPredict;
  LinePart part = {task.table(), {{LaunchOptionTable(), "before '" + name + "'"}}};
  for (const LinePart::Other& other : AfterTasks(name)) part.others.push_back(other);
  DSL_TRY_ASSIGN(OptionsAndArguments read,
                 WithHint(ReadOptionsAndArguments(part, arguments, word + 1)));
  if (read.arguments.size() > 1) {
    return Usage(name + " takes one recipe, but got " + Quoted(read.arguments[0]) + " and " +
                 Quoted(read.arguments[1]));
  }
  if (!read.arguments.empty()) options.train.recipe = read.arguments.front();
  return std::move(read.options);
}

// Reads the options of the command line, the launch file and the environment, then the options
// `task`, which follow the task name `word`.
Result<void> ReadAllLayers(const OptionLayer& line, const OptionLayer& file,
                           const OptionLayer& task, const std::string& word,
                           const ParseContext& context, ParsedFlags& flags) {
  DSL_TRY_ASSIGN(const OptionLayer variables,
                 EnvironmentLayer(LaunchOptionTable(), context.environment));
  const CommandSpec& launch = Commands().front();
  DSL_TRY(WithHint(ReadLayers({line, file, variables}, launch.exclusions, flags)));
  DSL_TRY(WithHint(CheckRequirements(launch.requirements, flags)));
  if (flags.options.mode != LaunchOptions::Mode::kTrain) return {};
  const CommandSpec& command = *CommandsOf(word).front();
  DSL_TRY(WithHint(ReadLayers({task}, command.exclusions, flags)));
  return WithHint(CheckRequirements(command.requirements, flags));
}

// Sets the mode and the words for the jobs of a search if the command line requests one, with
// `tune` or with --autotuning before `train`. `word` is the index of the task's name.
Result<void> DecideTuning(const OptionLayer& line, const std::vector<std::string>& arguments,
                          size_t word, ParsedFlags& flags) {
  LaunchOptions& options = flags.options;
  const bool is_command = word < arguments.size() && arguments[word] == "tune";
  const bool trains = options.train.task == TrainOptions::Task::kTrain;
  if (!is_command && (flags.autotuning.empty() || !trains)) return {};
  options.mode = LaunchOptions::Mode::kTune;
  options.tune.then_train = flags.autotuning == "run";
  if (word < arguments.size()) {
    options.tune.train_words.assign(arguments.begin() + static_cast<std::ptrdiff_t>(word) + 1,
                                    arguments.end());
  }
  OptionLayer launch = line;
  std::erase_if(launch.values, [](const auto& item) {
    const std::string_view name = NameOf(*item.first);
    return name == "--autotuning" || name == "--json";
  });
  options.tune.launch_words = LaunchWords(launch);
  for (const auto& [option, given, why] :
       {std::tuple("--detach", options.detach, "waits for each of its jobs"),
        std::tuple("--dry_run", options.dry_run,
                   "has no single job to show; give it to 'train'")}) {
    if (given) return Usage(std::string("tune ") + why + "; leave " + option + " out");
  }
  return {};
}

// Refuses --autotuning if it did not select a search.
Result<void> CheckAutotuning(const ParsedFlags& flags) {
  if (flags.autotuning.empty() || flags.options.mode == LaunchOptions::Mode::kTune) return {};
  return Usage(
      "--autotuning is for recipes of the built-in trainer: dslaunch tune RECIPE; for a Python "
      "program run deepspeed --autotuning once, and give dslaunch the configuration that it finds");
}

LaunchOptions ListOfRecipes(const TrainOptions& train) {
  LaunchOptions list;
  list.mode = LaunchOptions::Mode::kRecipeCommand;
  list.program = {"recipe", "ls"};
  if (train.plugin) list.program.push_back(*train.plugin);
  return list;
}

// Moves options that the trainer handles itself: a training run ends at the time limit with a
// checkpoint, and copies its state.
void MoveOptionsToTrainer(LaunchOptions& options) {
  if (options.time_limit_ms > 0) {
    const double limit_s = static_cast<double>(std::exchange(options.time_limit_ms, 0)) / 1000;
    options.train.time_limit_s = options.train.time_limit_s.value_or(limit_s);
  }
  const int64_t interval = std::exchange(options.memory_checkpoint, 0);
  if (interval > 0)
    options.train.memory_checkpoint = options.train.memory_checkpoint.value_or(interval);
}

}  // namespace

Result<LaunchOptions> ParseOptions(int argc, const char* const* argv, const ParseContext& context) {
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  const OptionTable& table = LaunchOptionTable();
  DSL_TRY_ASSIGN(const LeadingOptions leading,
                 WithHint(ReadLeadingOptions({table, AfterTasks()}, arguments, 0)));
  OptionLayer line = leading.options;
  const bool has_word = leading.next < arguments.size();
  const std::string first = has_word ? arguments[leading.next] : "";
  const bool is_program = NamesProgram(line);
  if (const auto mode = is_program ? std::nullopt : CommandMode(first))
    return CommandOptions(*mode, leading.next, arguments);

  ParsedFlags flags;
  LaunchOptions& options = flags.options;
  OptionLayer task;
  if (first == "bench" && !is_program) {
    DSL_TRY_ASSIGN(const std::optional<LaunchOptions> help,
                   ReadBench(arguments, leading.next, options));
    if (help) return *help;
  }
  if (const TaskWord* word = is_program ? nullptr : FindTask(arguments, leading.next)) {
    DSL_TRY_ASSIGN(task, ReadTrainWords(arguments, leading.next, *word, options));
  }
  if (const std::optional<LaunchOptions> text = AskedForText(line, task, first)) return *text;
  std::vector<std::string> program;
  if (options.mode == LaunchOptions::Mode::kProgram && !options.runs_trainer) {
    DSL_TRY(ReadProgram(arguments, leading.next, context, line, program, flags));
  }

  const auto [path, is_named] = ChooseLaunchFile(line, options.train.recipe, context);
  LaunchFile file;
  if (!path.empty()) {
    DSL_TRY_ASSIGN(file,
                   is_named ? ReadLaunchFile(path, table) : ReadUnnamedLaunchFile(path, table));
  }
  DSL_TRY(ReadAllLayers(line, file.launch, task, first, context, flags));
  options.hostfile_is_trusted =
      is_named || Has(line, "--hostfile") || !Has(file.launch, "--hostfile");
  if (flags.list_recipes) return ListOfRecipes(options.train);
  NoteIgnoredSections(line, file, path, flags);
  if (!has_word && flags.launch_file && file.has_recipe) options.mode = LaunchOptions::Mode::kTrain;
  if (options.mode == LaunchOptions::Mode::kTrain) {
    if (first != "predict") MoveOptionsToTrainer(options);
    DSL_TRY(DecideTask(flags));
    ChooseRecipe(file, path, flags);
    DSL_TRY(DecideTuning(line, arguments, leading.next, flags));
  } else if (!has_word) {
    return Usage("nothing to run: give 'train' or a program");
  } else if (options.runs_trainer && (flags.module || flags.no_python || flags.run_path)) {
    return Usage("--module, --no_python and --run_path are for programs; leave them out");
  } else if (!options.runs_trainer) {
    DSL_TRY(CheckProgramName(program.front(), flags, context));
    options.program = std::move(program);
  }
  DSL_TRY(CheckAutotuning(flags));
  DSL_TRY_ASSIGN(LaunchOptions resolved, WithHint(ResolveOptions(std::move(flags))));
  if (resolved.train.ranks) PlanInOneProcess(resolved);
  NoteTimeLimit(resolved);
  return resolved;
}

}  // namespace dslaunch

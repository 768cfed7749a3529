#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "cli/suggest.h"
#include "hostfiles/hostfile.h"

namespace dslaunch {
namespace {

constexpr char kVersionText[] = "dslaunch " DSLAUNCH_VERSION "\n";

constexpr char kHelpText[] =
    R"(dslaunch starts one process per slot on one or many nodes, and watches over them.

  dslaunch [launch options] train [RECIPE] [trainer options]   the built-in trainer
  dslaunch [launch options] PROGRAM [args...]                  any program or script

Where
  -H, --hostfile FILE      lines 'NAME slots=N'; default /job/hostfile if it exists
  --num_nodes N            use the first N nodes of the hostfile
  --num_gpus N             ranks per node (also --num_accelerators); default: all slots
  --launcher local|ssh     default: ssh with a hostfile, else local; local runs every
                           node on this machine
  --device auto|cuda|cpu   default auto: CUDA if every rank can have a GPU
  --master_port PORT       for the ranks' own rendezvous; default: any free port
  --connect_timeout S      seconds to reach all nodes; default 20

Output
  --tee all|none|0,3       ranks whose output is shown here; default 0
  --log_dir DIR            on each node; default: the user's state folder

Ending
  --grace S                seconds between SIGTERM and SIGKILL; default 10

  --help, --version
  dslaunch train --help    the trainer options

Options may be spelt with '-' or '_' and must precede PROGRAM: what follows it is its
own. A program that is called train is started as ./train.
)";

constexpr char kTrainHelpText[] =
    R"(dslaunch [launch options] train [RECIPE] [trainer options]

RECIPE is a YAML or JSON file, or the name of a built-in recipe. Without it ./dslaunch.yaml
is taken if there is one, else the built-in fashion_mnist.

  --steps N                optimizer steps to run
  --epochs N               passes over the data; excludes --steps
  --seed S                 for initial weights and data order
  --data PATH              overrides the recipe's data.path
  --set KEY.PATH=VALUE     overrides any value of the recipe; may be repeated
  --metrics_jsonl FILE     one JSON object per step
  --checkpoint_dir DIR     a folder that all nodes share; a checkpoint at the end
  --save_every N           and after every N optimizer steps; the last two are kept
  --resume auto|TAG|none   default auto: from the newest whole checkpoint, if any
)";

Error Usage(const std::string& what) {
  return {ExitCode::kUsage, what + (what.back() == '?' ? " See" : "; see") + " dslaunch --help"};
}

std::string Quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

// Throws CLI::ValidationError naming the option, as CLI11 expects of a reader.
template <class T>
T ReadWhole(const std::string& option, const std::string& text, T min, T max) {
  T value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < min || value > max) {
    throw CLI::ValidationError(option + " must be a whole number from " + std::to_string(min) +
                               " to " + std::to_string(max) + ", not " + Quoted(text));
  }
  return value;
}

int64_t ReadSecondsAsMs(const std::string& option, const std::string& text, double min_s) {
  constexpr double kMaxS = 86400;
  double seconds = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (status != std::errc() || end != text.data() + text.size() ||
      !(seconds >= min_s && seconds <= kMaxS)) {
    const std::string range = min_s > 0 ? "0.1 to 86400" : "0 to 86400";
    throw CLI::ValidationError(option + " must be seconds, " + range + ", not " + Quoted(text));
  }
  return std::llround(seconds * 1000);
}

template <class T>
T ReadChoice(const std::string& option, const std::string& text,
             const std::vector<std::pair<std::string, T>>& choices) {
  std::string names;
  for (const auto& [name, value] : choices) {
    if (CLI::detail::to_lower(text) == name) return value;
    names += (names.empty() ? "" : ", ") + name;
  }
  throw CLI::ValidationError(option + " must be one of " + names + ", not " + Quoted(text));
}

Tee ReadTee(const std::string& text) {
  constexpr int kMaxRank = (1 << 24) - 1;
  if (text == "all") return {true, {}};
  if (text == "none") return {false, {}};
  Tee tee{false, {}};
  if (text.empty() || text.back() == ',') {
    throw CLI::ValidationError("--tee must be all, none or ranks such as 0,3, not " + Quoted(text));
  }
  for (const std::string& rank : CLI::detail::split(text, ',')) {
    tee.ranks.push_back(ReadWhole<int>("--tee: each rank", rank, 0, kMaxRank));
  }
  std::sort(tee.ranks.begin(), tee.ranks.end());
  tee.ranks.erase(std::unique(tee.ranks.begin(), tee.ranks.end()), tee.ranks.end());
  return tee;
}

// Adds an option whose value goes through `read`; the last one given counts.
void AddReader(CLI::App& app, const std::string& names,
               const std::function<void(const std::string&)>& read) {
  app.add_option_function<std::string>(names, read)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void AddWhole(CLI::App& app, const std::string& name, int64_t min, std::optional<int64_t>& out) {
  AddReader(app, name, [=, &out](const std::string& text) {
    out = ReadWhole<int64_t>(name, text, min, int64_t{1} << 53);
  });
}

void AddText(CLI::App& app, const std::string& names, const std::string& name,
             const std::function<void(const std::string&)>& store) {
  AddReader(app, names, [=](const std::string& text) {
    if (text.empty()) throw CLI::ValidationError(name + " needs a value that is not empty");
    store(text);
  });
}

void AddLaunchOptions(CLI::App& app, LaunchOptions& options) {
  AddReader(app, "--num_nodes", [&](const std::string& text) {
    options.num_nodes = ReadWhole<int>("--num_nodes", text, 1, 1'000'000);
  });
  AddReader(app, "--num_gpus,--num_accelerators", [&](const std::string& text) {
    options.num_gpus = ReadWhole<int>("--num_gpus", text, 1, kMaxSlots);
  });
  AddText(app, "-H,--hostfile", "--hostfile",
          [&](const std::string& text) { options.hostfile = text; });
  AddReader(app, "--launcher", [&](const std::string& text) {
    options.launcher = ReadChoice<Launcher>("--launcher", text,
                                            {{"local", Launcher::kLocal}, {"ssh", Launcher::kSsh}});
  });
  AddReader(app, "--device", [&](const std::string& text) {
    options.device = ReadChoice<DeviceChoice>("--device", text,
                                              {{"auto", DeviceChoice::kAuto},
                                               {"cuda", DeviceChoice::kCuda},
                                               {"cpu", DeviceChoice::kCpu}});
  });
  AddReader(app, "--master_port", [&](const std::string& text) {
    options.master_port = ReadWhole<int>("--master_port", text, 0, 65535);
  });
  AddReader(app, "--tee", [&](const std::string& text) { options.tee = ReadTee(text); });
  AddText(app, "--log_dir", "--log_dir", [&](const std::string& text) { options.log_dir = text; });
  AddReader(app, "--grace", [&](const std::string& text) {
    options.grace_ms = ReadSecondsAsMs("--grace", text, 0);
  });
  AddReader(app, "--connect_timeout", [&](const std::string& text) {
    options.connect_timeout_ms = ReadSecondsAsMs("--connect_timeout", text, 0.1);
  });
}

void AddTrainOptions(CLI::App& app, TrainOptions& train) {
  AddWhole(app, "--steps", 1, train.steps);
  AddWhole(app, "--epochs", 1, train.epochs);
  AddWhole(app, "--seed", 0, train.seed);
  AddText(app, "--data", "--data", [&](const std::string& text) { train.data = text; });
  AddText(app, "--metrics_jsonl", "--metrics_jsonl",
          [&](const std::string& text) { train.metrics_jsonl = text; });
  AddText(app, "--checkpoint_dir", "--checkpoint_dir",
          [&](const std::string& text) { train.checkpoint_dir = text; });
  AddWhole(app, "--save_every", 1, train.save_every);
  AddText(app, "--resume", "--resume", [&](const std::string& text) { train.resume = text; });
  app.add_option("--set", train.sets)->allow_extra_args(false);
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

std::vector<std::string> LongNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  return names;
}

// One half of the command line: the options that count there, and where the options of the other
// half belong.
struct Half {
  const CLI::App& app;
  const CLI::App& other;
  const char* other_place;
};

Error UnknownOption(const Half& half, const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  std::string word = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  std::replace(word.begin(), word.end(), '-', '_');
  if (half.other.get_option_no_throw(SplitName(argument).first) != nullptr) {
    return Usage("option " + Quoted(name) + " belongs " + half.other_place);
  }
  const std::string near = Nearest(word, LongNames(half.app));
  if (near.empty()) return Usage("option " + Quoted(name) + " is not supported");
  return Usage("unknown option " + Quoted(name) + ", did you mean --" + near + "?");
}

Result<Split> SplitOptions(const Half& half, const std::vector<std::string>& arguments,
                           size_t begin) {
  Split split;
  for (split.next = begin; split.next < arguments.size(); ++split.next) {
    const std::string& argument = arguments[split.next];
    if (argument == "--") {
      ++split.next;
      break;
    }
    if (argument.size() < 2 || argument.front() != '-') break;
    const auto [name, attached] = SplitName(argument);
    const CLI::Option* option = half.app.get_option_no_throw(name);
    if (option == nullptr) return UnknownOption(half, argument);
    if (option->get_items_expected_max() == 0) {  // a flag
      if (!attached.empty()) return Usage(name + " takes no value");
      split.options.push_back(name);
      continue;
    }
    std::string value = attached.substr(attached.rfind('=', 0) == 0 ? 1 : 0);
    if (attached.empty()) {
      if (split.next + 1 == arguments.size() || arguments[split.next + 1].rfind("--", 0) == 0) {
        return Usage(name + " needs a value");
      }
      value = arguments[++split.next];
    }
    split.options.insert(split.options.end(), {name, value});
  }
  return split;
}

// Has CLI11 read the options; its exceptions end here.
Result<void> Read(CLI::App& app, std::vector<std::string> options) {
  try {
    std::reverse(options.begin(), options.end());  // as CLI11 wants them
    app.parse(std::move(options));
    return {};
  } catch (const CLI::Error& error) {
    return Usage(error.what());
  }
}

// What follows `train`: one recipe and options, in any order.
Result<void> ParseTrain(const Half& half, CLI::App& app, const std::vector<std::string>& arguments,
                        size_t begin, TrainOptions& train) {
  std::vector<std::string> options;
  while (true) {
    DSL_TRY_ASSIGN(const Split split, SplitOptions(half, arguments, begin));
    options.insert(options.end(), split.options.begin(), split.options.end());
    if (split.next == arguments.size()) break;
    if (train.recipe) {
      return Usage("train takes one recipe, but got " + Quoted(*train.recipe) + " and " +
                   Quoted(arguments[split.next]));
    }
    train.recipe = arguments[split.next];
    begin = split.next + 1;
  }
  DSL_TRY(Read(app, std::move(options)));
  if (train.steps && train.epochs) {
    return Usage("--steps and --epochs exclude each other; give one of them");
  }
  return {};
}

LaunchOptions TextOnly(LaunchOptions::Mode mode, std::string text) {
  LaunchOptions options;
  options.mode = mode;
  options.text = std::move(text);
  return options;
}

}  // namespace

Result<LaunchOptions> ParseOptions(int argc, const char* const* argv) {
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  LaunchOptions options;
  bool help = false;
  bool train_help = false;
  bool version = false;
  CLI::App launch, train;
  launch.set_help_flag();
  launch.add_flag("-h,--help", help);
  launch.add_flag("--version", version);
  AddLaunchOptions(launch, options);
  train.set_help_flag();
  train.add_flag("-h,--help", train_help);
  AddTrainOptions(train, options.train);

  DSL_TRY_ASSIGN(const Split split, SplitOptions({launch, train, "after 'train'"}, arguments, 0));
  DSL_TRY(Read(launch, split.options));
  if (help) return TextOnly(LaunchOptions::Mode::kHelp, kHelpText);
  if (version) return TextOnly(LaunchOptions::Mode::kVersion, kVersionText);
  if (split.next == arguments.size()) {
    return Usage("nothing to run: give 'train' or a program");
  }
  const std::string& first = arguments[split.next];
  if (first == "train") {
    options.mode = LaunchOptions::Mode::kTrain;
    DSL_TRY(ParseTrain({train, launch, "before 'train'"}, train, arguments, split.next + 1,
                       options.train));
    if (train_help) return TextOnly(LaunchOptions::Mode::kHelp, kTrainHelpText);
    return options;
  }
  if (first.empty()) return Usage("the program's name is empty");
  options.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(split.next),
                         arguments.end());
  return options;
}

}  // namespace dslaunch

#include "cli/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <iterator>

#include "cli/count.h"
#include "cli/doctor_command.h"
#include "cli/job_command.h"
#include "cli/option_values.h"
#include "cli/suggest.h"
#include "hostfiles/hostfile.h"

namespace dslaunch {
namespace {

constexpr char kVersionText[] = "dslaunch " DSLAUNCH_VERSION "\n";

constexpr char kHelpText[] =
    R"(dslaunch starts one process per slot on one or many nodes, and watches over them.

  dslaunch [launch options] train [RECIPE] [trainer options]   the built-in trainer
  dslaunch [launch options] predict [RECIPE] [options]         what a trained model says
  dslaunch [launch options] PROGRAM [args...]                  any program or script
  dslaunch ps | logs JOB | attach JOB | stop JOB               jobs started before
  dslaunch checkpoint ls | verify | export                     what training has kept

Where
  -H, --hostfile FILE      lines 'NAME slots=N [spare=true]'; default /job/hostfile if it
                           exists; a spare gets ranks only in place of a lost node
  --num_nodes N            use the first N nodes of the hostfile
  --nnodes N | MIN:MAX     N: the same; a range: go on with fewer nodes, down to MIN,
                           when some are lost; nodes beyond MAX are spares
  --min_elastic_nodes N, --max_elastic_nodes N
                           the same range, as DeepSpeed spells it
  --num_gpus N             ranks per node (also --num_accelerators); default: all slots
  --launcher local|ssh     default: ssh with a hostfile, else local; local runs every
                           node on this machine
  --device auto|cuda|cpu   default auto: CUDA if every rank can have a GPU
  --master_port PORT       for the ranks' own rendezvous; default: any free port
  --connect_timeout S      seconds to reach all nodes; default 20

Output
  --tee all|none|0,3       ranks whose output is shown here; default 0
  --detach                 print the job's id once every rank is started, and end; the
                           job goes on: dslaunch ps, logs, attach, stop
  --json                   how the job ended, as one JSON object on stdout's last line
  --log_dir DIR            on each node; default: the user's state folder
  --log_max_mb N           of each log file: beyond it the oldest part is dropped

When something fails
  --max_restarts N         times that the ranks are started again; default 0, or 3 with
                           spares or a range of nodes
  --restart_delay_s S      before the first restart; doubles up to 30; default 1
  --on_join next|now       a node that comes later, or comes back, gets ranks at the next
                           restart (default), or the ranks are restarted for it
  --on_hang report|kill|restart
                           when a rank's steps stop; default report
  --hang_s S               without a step, and 5 times the usual, is a hang; 0: never;
                           default 60
  --heartbeat_s S, --suspect_s S, --dead_s S
                           how often nodes are heard; how much silence is said; after how
                           much a node is lost; default 1, 3, 6
  --lease_s S              silence of this machine that ends the job; default 60
  --grace S                seconds between SIGTERM and SIGKILL; default 10

  --help, --version
  dslaunch train --help, dslaunch predict --help

Options may be spelt with '-' or '_' and must precede PROGRAM: what follows it is its
own. A program that is called train, predict, ps, logs, attach, stop or checkpoint is
started as ./train.
)";

constexpr char kTrainHelpText[] =
    R"(dslaunch [launch options] train [RECIPE] [trainer options]

RECIPE is a YAML or JSON file, or the name of a built-in recipe. Without it ./dslaunch.yaml
is taken if there is one, else the built-in fashion_mnist.

What to train, and on what
  --deepspeed_config FILE  DeepSpeed's JSON, in place of the recipe's engine section
  --set KEY.PATH=VALUE     overrides any value of the recipe; may be repeated
  --data PATH              overrides the recipe's data.path
  --plugin LIB.so          a model of your own, in place of the recipe's
  --init_weights PATH      a safetensors file, or a folder with model.safetensors
  --seed S                 for initial weights and data order
  --deterministic          only algorithms that repeat bit by bit

How long
  --steps N                optimizer steps to run
  --epochs N               passes over the data; excludes --steps
  --time_limit S           after S seconds finish the step, save, and end with code 85
  --eval_only              train nothing: test the weights of the checkpoint, or of
                           --init_weights
  --plan_memory            train nothing: say how much memory each rank would need
  --plan_pipeline          train nothing: draw what each stage of the pipeline would do
  --pipeline_svg FILE      with it: draw it as a picture too

What to keep
  --checkpoint_dir DIR     a folder that all nodes share; a checkpoint at the end
  --save_every N           and after every N optimizer steps; the last two are kept
  --async_save             steps wait for a copy of the state only, not for the disk
  --resume auto|TAG|none   default auto: from the newest whole checkpoint, if any
  --load_module_only       take only the weights of that checkpoint, and start at step 1
  --export_hf DIR          gpt2: the weights as Hugging Face's transformers reads them
  --metrics_jsonl FILE     one JSON object per step
  --trace DIR              a Chrome trace of each rank
)";

constexpr char kPredictHelpText[] =
    R"(dslaunch [launch options] predict [RECIPE] [prediction options]

Answers for each sample of the recipe's test data, in its order, as JSON lines; gpt2 goes on
from a prompt. RECIPE is what the model was trained with. The weights come from the newest
checkpoint in --checkpoint_dir, or from --init_weights.

  --checkpoint_dir DIR     of the training
  --resume auto|TAG|none   which checkpoint; default auto: the newest whole one
  --init_weights PATH      a safetensors file, or a folder with model.safetensors
  --output FILE            where the answers go; default: stdout
  --data PATH              overrides the recipe's data.path
  --plugin LIB.so          a model of your own, in place of the recipe's
  --deepspeed_config FILE  DeepSpeed's JSON, in place of the recipe's engine section
  --set KEY.PATH=VALUE     overrides any value of the recipe; may be repeated
  --seed S                 for what is drawn at random
  --deterministic          only algorithms that repeat bit by bit

Text (gpt2)
  --prompt TEXT            what to go on from
  --max_new_tokens N       default 128
  --temperature T          0: always the likeliest token; default 1
  --top_k K                draw among the K likeliest tokens; 0: all (default)
)";

Error Usage(const std::string& what) {
  return {ExitCode::kUsage, what + (what.back() == '?' ? " See" : "; see") + " dslaunch --help"};
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

void AddOptionalText(CLI::App& app, const std::string& name, std::optional<std::string>& out) {
  AddText(app, name, name, [&out](const std::string& text) { out = text; });
}

void AddSeconds(CLI::App& app, const std::string& name, double min_s, double max_s,
                int64_t& out_ms) {
  AddReader(app, name, [=, &out_ms](const std::string& text) {
    out_ms = ReadSecondsAsMs(name, text, min_s, max_s);
  });
}

void AddNumber(CLI::App& app, const std::string& name, int min, int max, std::optional<int>& out) {
  AddReader(app, name,
            [=, &out](const std::string& text) { out = ReadWhole<int>(name, text, min, max); });
}

// The ways to say how many nodes; CheckNodes makes one of them.
struct NodeOptions {
  std::optional<int> num_nodes;
  std::optional<NodeRange> nnodes;
  std::optional<int> min_elastic;
  std::optional<int> max_elastic;
};

void AddNodeOptions(CLI::App& app, NodeOptions& nodes) {
  AddNumber(app, "--num_nodes", 1, kMaxNodes, nodes.num_nodes);
  AddReader(app, "--nnodes", [&](const std::string& text) { nodes.nnodes = ReadNodes(text); });
  AddNumber(app, "--min_elastic_nodes", 1, kMaxNodes, nodes.min_elastic);
  AddNumber(app, "--max_elastic_nodes", 1, kMaxNodes, nodes.max_elastic);
}

void AddFailureOptions(CLI::App& app, LaunchOptions& options) {
  constexpr double kDayS = 86400;
  AddNumber(app, "--max_restarts", 0, 1'000'000, options.max_restarts);
  AddSeconds(app, "--restart_delay_s", 0, kMaxRestartDelayMs / 1000, options.restart_delay_ms);
  AddReader(app, "--on_join", [&](const std::string& text) {
    options.on_join = ReadChoice<OnJoin>("--on_join", text,
                                         {{"next", OnJoin::kNextRestart}, {"now", OnJoin::kNow}});
  });
  AddReader(app, "--on_hang", [&](const std::string& text) {
    options.on_hang = ReadChoice<OnHang>(
        "--on_hang", text,
        {{"report", OnHang::kReport}, {"kill", OnHang::kKill}, {"restart", OnHang::kRestart}});
  });
  AddSeconds(app, "--hang_s", 0, kDayS, options.hang_ms);
  AddSeconds(app, "--heartbeat_s", 0.1, kDayS, options.heartbeat_ms);
  AddSeconds(app, "--suspect_s", 0.1, kDayS, options.suspect_ms);
  AddSeconds(app, "--dead_s", 0.1, kDayS, options.dead_ms);
  AddSeconds(app, "--lease_s", 1, kDayS, options.lease_ms);
  AddSeconds(app, "--grace", 0, kDayS, options.grace_ms);
}

void AddLaunchOptions(CLI::App& app, LaunchOptions& options) {
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
  AddReader(app, "--log_max_mb", [&](const std::string& text) {
    options.log_max_mb = ReadWhole<int>("--log_max_mb", text, 0, 1'000'000'000);
  });
  app.add_flag("--json", options.json);
  app.add_flag("--detach", options.detach);
  AddSeconds(app, "--connect_timeout", 0.1, 86400, options.connect_timeout_ms);
}

// Of `train` and `predict`.
void AddSharedOptions(CLI::App& app, TrainOptions& train) {
  AddOptionalText(app, "--deepspeed_config", train.deepspeed_config);
  app.add_option("--set", train.sets)->allow_extra_args(false);
  AddOptionalText(app, "--data", train.data);
  AddOptionalText(app, "--plugin", train.plugin);
  AddOptionalText(app, "--init_weights", train.init_weights);
  AddWhole(app, "--seed", 0, train.seed);
  app.add_flag("--deterministic", train.deterministic);
  AddOptionalText(app, "--checkpoint_dir", train.checkpoint_dir);
  AddOptionalText(app, "--resume", train.resume);
}

struct TrainFlags {
  bool eval_only = false;
  bool plan_memory = false;
  bool plan_pipeline = false;
};

void AddTrainOptions(CLI::App& app, TrainOptions& train, TrainFlags& flags) {
  constexpr double kMaxTimeLimitS = 1e9;
  AddSharedOptions(app, train);
  AddWhole(app, "--steps", 1, train.steps);
  AddWhole(app, "--epochs", 1, train.epochs);
  AddReader(app, "--time_limit", [&](const std::string& text) {
    train.time_limit_s = ReadNumber("--time_limit", text, 0.001, kMaxTimeLimitS);
  });
  app.add_flag("--eval_only", flags.eval_only);
  app.add_flag("--plan_memory", flags.plan_memory);
  app.add_flag("--plan_pipeline", flags.plan_pipeline);
  AddWhole(app, "--save_every", 1, train.save_every);
  app.add_flag("--async_save", train.async_save);
  app.add_flag("--load_module_only", train.load_module_only);
  AddOptionalText(app, "--export_hf", train.export_hf);
  AddOptionalText(app, "--metrics_jsonl", train.metrics_jsonl);
  AddOptionalText(app, "--trace", train.trace);
  AddOptionalText(app, "--pipeline_svg", train.pipeline_svg);
}

void AddPredictOptions(CLI::App& app, TrainOptions& train) {
  constexpr double kMaxTemperature = 1e6;
  AddSharedOptions(app, train);
  AddOptionalText(app, "--output", train.output);
  AddOptionalText(app, "--prompt", train.prompt);
  AddWhole(app, "--max_new_tokens", 1, train.max_new_tokens);
  AddReader(app, "--temperature", [&](const std::string& text) {
    train.temperature = ReadNumber("--temperature", text, 0, kMaxTemperature);
  });
  AddWhole(app, "--top_k", 0, train.top_k);
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

// One part of the command line: the options that count there, and where those of the other parts
// belong.
struct Part {
  struct Other {
    const CLI::App& app;
    const char* place;
  };
  const CLI::App& app;
  std::vector<Other> others;
};

Error UnknownOption(const Part& part, const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  std::string word = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  std::replace(word.begin(), word.end(), '-', '_');
  for (const Part::Other& other : part.others) {
    if (other.app.get_option_no_throw(SplitName(argument).first) != nullptr) {
      return Usage("option " + Quoted(name) + " belongs " + other.place);
    }
  }
  const std::string near = Nearest(word, LongNames(part.app));
  if (near.empty()) return Usage("option " + Quoted(name) + " is not supported");
  return Usage("unknown option " + Quoted(name) + ", did you mean --" + near + "?");
}

Result<Split> SplitOptions(const Part& part, const std::vector<std::string>& arguments,
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
    const CLI::Option* option = part.app.get_option_no_throw(name);
    if (option == nullptr) return UnknownOption(part, argument);
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

// What follows `train` or `predict` (`word`): one recipe and options, in any order.
Result<void> ParseTask(const std::string& word, const Part& part, CLI::App& app,
                       const std::vector<std::string>& arguments, size_t begin,
                       TrainOptions& train) {
  std::vector<std::string> options;
  while (true) {
    DSL_TRY_ASSIGN(const Split split, SplitOptions(part, arguments, begin));
    options.insert(options.end(), split.options.begin(), split.options.end());
    if (split.next == arguments.size()) break;
    if (train.recipe) {
      return Usage(word + " takes one recipe, but got " + Quoted(*train.recipe) + " and " +
                   Quoted(arguments[split.next]));
    }
    train.recipe = arguments[split.next];
    begin = split.next + 1;
  }
  return Read(app, std::move(options));
}

// Options that contradict each other. Sets the task.
Result<void> CheckTrain(const TrainFlags& flags, TrainOptions& train) {
  if (train.steps && train.epochs) {
    return Usage("--steps and --epochs exclude each other; give one of them");
  }
  if (flags.eval_only + flags.plan_memory + flags.plan_pipeline > 1) {
    return Usage(
        "--eval_only, --plan_memory and --plan_pipeline exclude each other; give one of them");
  }
  if (flags.plan_memory) train.task = TrainOptions::Task::kPlanMemory;
  if (flags.plan_pipeline) train.task = TrainOptions::Task::kPlanPipeline;
  if (train.pipeline_svg && !flags.plan_pipeline) {
    return Usage("--pipeline_svg is where --plan_pipeline draws its picture; give that too");
  }
  if (!flags.eval_only) return {};
  train.task = TrainOptions::Task::kEvaluate;
  const std::pair<const char*, bool> of_training[] = {
      {"--steps", train.steps.has_value()},
      {"--epochs", train.epochs.has_value()},
      {"--save_every", train.save_every.has_value()},
      {"--async_save", train.async_save},
      {"--load_module_only", train.load_module_only},
      {"--time_limit", train.time_limit_s.has_value()}};
  for (const auto& [name, given] : of_training) {
    if (given) return Usage(std::string("--eval_only trains nothing; leave ") + name + " out");
  }
  return {};
}

// One way to say how many nodes, or none.
Result<void> CheckNodes(const NodeOptions& given, LaunchOptions& options) {
  const bool by_range = given.min_elastic || given.max_elastic;
  if (given.nnodes && (given.num_nodes || by_range)) {
    return Usage(
        "--nnodes excludes --num_nodes, --min_elastic_nodes and --max_elastic_nodes; "
        "give one of them");
  }
  if (given.num_nodes && given.max_elastic) {
    return Usage("--num_nodes and --max_elastic_nodes exclude each other; give one of them");
  }
  if (given.nnodes && given.nnodes->max) {
    options.min_nodes = given.nnodes->min;
    options.max_nodes = given.nnodes->max;
  } else if (given.nnodes) {
    options.num_nodes = given.nnodes->min;
  } else if (by_range) {
    options.min_nodes = given.min_elastic.value_or(1);
    options.max_nodes = given.max_elastic ? given.max_elastic : given.num_nodes;
    if (options.max_nodes && *options.min_nodes > *options.max_nodes) {
      return Usage("--min_elastic_nodes " + std::to_string(*options.min_nodes) +
                   " is more than the " + std::to_string(*options.max_nodes) +
                   " nodes there may be; ask for fewer");
    }
  } else {
    options.num_nodes = given.num_nodes;
  }
  return {};
}

Result<void> CheckSilences(const LaunchOptions& options) {
  const std::pair<const char*, int64_t> rising[] = {{"--heartbeat_s", options.heartbeat_ms},
                                                    {"--suspect_s", options.suspect_ms},
                                                    {"--dead_s", options.dead_ms}};
  for (size_t i = 1; i < std::size(rising); ++i) {
    if (rising[i - 1].second < rising[i].second) continue;
    const auto text = [](const auto& option) {
      return std::string(option.first) + " (" + Seconds(option.second) + ")";
    };
    return Usage(text(rising[i - 1]) + " must be less than " + text(rising[i]) +
                 "; lower the first or raise the second");
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
  bool task_help = false;
  bool version = false;
  TrainFlags flags;
  CLI::App launch, train, predict;
  launch.set_help_flag();
  launch.add_flag("-h,--help", help);
  launch.add_flag("--version", version);
  NodeOptions nodes;
  AddNodeOptions(launch, nodes);
  AddLaunchOptions(launch, options);
  AddFailureOptions(launch, options);
  for (CLI::App* task : {&train, &predict}) {
    task->set_help_flag();
    task->add_flag("-h,--help", task_help);
  }
  AddTrainOptions(train, options.train, flags);
  AddPredictOptions(predict, options.train);

  const Part::Other after_train = {train, "after 'train'"};
  const Part::Other after_predict = {predict, "after 'predict'"};
  DSL_TRY_ASSIGN(const Split split,
                 SplitOptions({launch, {after_train, after_predict}}, arguments, 0));
  DSL_TRY(Read(launch, split.options));
  if (help) return TextOnly(LaunchOptions::Mode::kHelp, kHelpText);
  if (version) return TextOnly(LaunchOptions::Mode::kVersion, kVersionText);
  DSL_TRY(CheckNodes(nodes, options));
  DSL_TRY(CheckSilences(options));
  if (split.next == arguments.size()) {
    return Usage("nothing to run: give 'train' or a program");
  }
  if (options.detach && options.json) {
    return Usage(
        "--json says how the job ended, which --detach does not wait for; dslaunch ps "
        "--all --json does");
  }
  const std::string& first = arguments[split.next];
  if (first == "train" || first == "predict") {
    const bool predicts = first == "predict";
    CLI::App& task = predicts ? predict : train;
    const Part part = {task,
                       {{launch, predicts ? "before 'predict'" : "before 'train'"},
                        predicts ? after_train : after_predict}};
    options.mode = LaunchOptions::Mode::kTrain;
    if (predicts) options.train.task = TrainOptions::Task::kPredict;
    DSL_TRY(ParseTask(first, part, task, arguments, split.next + 1, options.train));
    if (task_help) {
      return TextOnly(LaunchOptions::Mode::kHelp, predicts ? kPredictHelpText : kTrainHelpText);
    }
    DSL_TRY(CheckTrain(flags, options.train));
    return options;
  }
  if (IsJobCommand(first) || first == "checkpoint") {
    if (split.next > 0) {
      return Usage(Quoted(first) + " takes no launch options; a program of that name is ./" +
                   first);
    }
    options.mode = first == "checkpoint" ? LaunchOptions::Mode::kCheckpointCommand
                                         : LaunchOptions::Mode::kJobCommand;
    options.program = arguments;
    return options;
  }
  if (IsDoctorCommand(first)) {
    if (split.next > 0) return Usage("options of 'doctor' come behind it: dslaunch doctor -H FILE");
    options.mode = LaunchOptions::Mode::kDoctor;
    options.program = arguments;
    return options;
  }
  if (first.empty()) return Usage("the program's name is empty");
  options.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(split.next),
                         arguments.end());
  return options;
}

}  // namespace dslaunch

// Defines the options of `train`, `predict`, `tune` and `bench comm`.
#include "cli/options/option_readers.h"

namespace dslaunch {
namespace {

using Group = OptionGroup;

constexpr int64_t kMost = int64_t{1} << 53;

void AddSet(const FlagValue& given, ParsedFlags& flags) {
  flags.options.train.sets.push_back(given.text);
}

void TimeLimit(const FlagValue& given, ParsedFlags& flags) {
  constexpr double kMaxTimeLimitS = 1e9;
  flags.options.train.time_limit_s =
      static_cast<double>(ReadSecondsAsMs(given.name, given.text, 0.001, kMaxTimeLimitS)) / 1000;
}

void Budget(const FlagValue& given, ParsedFlags& flags) {
  constexpr double kMaxBudgetS = 30 * 86'400.0;
  flags.options.tune.budget_s =
      static_cast<double>(ReadSecondsAsMs(given.name, given.text, 1, kMaxBudgetS)) / 1000;
}

void Temperature(const FlagValue& given, ParsedFlags& flags) {
  constexpr double kMaxTemperature = 1e6;
  flags.options.train.temperature = ReadNumber(given.name, given.text, 0, kMaxTemperature);
}

void TopP(const FlagValue& given, ParsedFlags& flags) {
  flags.options.train.top_p = ReadNumber(given.name, given.text, 1e-6, 1);
}

void AddStop(const FlagValue& given, ParsedFlags& flags) {
  flags.options.train.stop.push_back(given.text);
}

// Appends an option that `bench comm` of dslaunch-train reads itself (trainer/bench/measure.h) to
// the arguments of dslaunch-train.
void PassToTrainer(const FlagValue& given, ParsedFlags& flags) {
  if (given.text.empty()) throw ValidationError(given.name + " needs a value that is not empty");
  flags.trainer_words.insert(flags.trainer_words.end(), {given.name, given.text});
}

OptionSpec DeepspeedConfig(Group group) {
  return {.names = "--deepspeed_config",
          .value = "FILE",
          .group = group,
          .help = "a DeepSpeed JSON file, in place of the recipe's engine section",
          .target = kFile<&TrainOptions::deepspeed_config>};
}

OptionSpec Set(Group group) {
  return {.names = "--set",
          .value = "KEY.PATH=VALUE",
          .group = group,
          .help = "overrides any value of the recipe; may be repeated",
          .target = AddSet,
          .repeatable = true,
          .offers = Offers::kRecipeKeys};
}

OptionSpec Data(Group group) {
  return {.names = "--data",
          .value = "PATH",
          .group = group,
          .help = "overrides the recipe's data.path",
          .target = kFile<&TrainOptions::data>};
}

OptionSpec Plugin(Group group) {
  return {.names = "--plugin",
          .value = "LIB.so",
          .group = group,
          .help = "a model of your own, in place of the recipe's",
          .target = kFile<&TrainOptions::plugin>};
}

OptionSpec InitWeights(Group group) {
  return {.names = "--init_weights",
          .value = "PATH",
          .group = group,
          .help = "a safetensors file, or a folder with model.safetensors",
          .target = kFile<&TrainOptions::init_weights>};
}

OptionSpec Deterministic(Group group) {
  return {.names = "--deterministic",
          .group = group,
          .help = "use only algorithms with bitwise reproducible results",
          .target = kFlag<&TrainOptions::deterministic>};
}

}  // namespace

const OptionTable& TrainOptionTable() {
  static const OptionTable table = {
      {.names = "--list",
       .group = Group::kTrainWhat,
       .help =
           "do not train: list the built-in recipes, or what --plugin has, as dslaunch recipe ls",
       .target = kFlag<&ParsedFlags::list_recipes>},
      DeepspeedConfig(Group::kTrainWhat),
      Set(Group::kTrainWhat),
      Data(Group::kTrainWhat),
      Plugin(Group::kTrainWhat),
      InitWeights(Group::kTrainWhat),
      {.names = "--seed",
       .value = "S",
       .group = Group::kTrainWhat,
       .help = "seed of the initial weights and the data order",
       .target = kWhole<&TrainOptions::seed, 0, kMost>},
      Deterministic(Group::kTrainWhat),

      {.names = "--steps",
       .value = "N",
       .group = Group::kTrainLength,
       .help = "optimizer steps to run",
       .target = kWhole<&TrainOptions::steps, 1, kMost>},
      {.names = "--epochs",
       .value = "N",
       .group = Group::kTrainLength,
       .help = "passes over the data; excludes --steps",
       .target = kWhole<&TrainOptions::epochs, 1, kMost>},
      {.names = "--time_limit",
       .value = "S",
       .group = Group::kTrainLength,
       .help = "after S seconds finish the step, save a checkpoint, and exit with code 85",
       .target = {TimeLimit, ValueKind::kSeconds}},
      {.names = "--eval_only",
       .group = Group::kTrainLength,
       .help = "do not train: test the weights of the checkpoint, or of --init_weights",
       .target = kFlag<&ParsedFlags::eval_only>},
      {.names = "--eval_file",
       .value = "FILE",
       .group = Group::kTrainLength,
       .help = "with --eval_only: JSON lines of documents or of questions, in place of the data",
       .target = kFile<&TrainOptions::eval_file>},
      {.names = "--tokenizer",
       .value = "DIR",
       .group = Group::kTrainLength,
       .help = "with --eval_file: folder with tokenizer.json; default: that of --init_weights",
       .target = kFolder<&TrainOptions::tokenizer>},
      {.names = "--plan_memory",
       .group = Group::kTrainLength,
       .help = "do not train: print how much memory each rank would need",
       .target = kFlag<&ParsedFlags::plan_memory>},
      {.names = "--ranks",
       .value = "N",
       .group = Group::kTrainLength,
       .help = "with --plan_memory: plan for N ranks, which are not started; --num_gpus of them on "
               "a node",
       .target = kWhole<&TrainOptions::ranks, 1, 1'000'000>},
      {.names = "--plan_pipeline",
       .group = Group::kTrainLength,
       .help = "do not train: draw what each stage of the pipeline would do",
       .target = kFlag<&ParsedFlags::plan_pipeline>},
      {.names = "--pipeline_svg",
       .value = "FILE",
       .group = Group::kTrainLength,
       .help = "with --plan_pipeline: also draw it as a picture",
       .target = kFile<&TrainOptions::pipeline_svg>},

      {.names = "--compare_precision",
       .group = Group::kTrainLength,
       .help = "compare time and memory of the run in fp32, bf16 and fp16",
       .target = kFlag<&ParsedFlags::compare_precision>},

      {.names = "--checkpoint_dir",
       .value = "DIR",
       .group = Group::kTrainKeep,
       .help = "folder that all nodes share; a checkpoint is saved there at the end",
       .target = kFolder<&TrainOptions::checkpoint_dir>},
      {.names = "--save_every",
       .value = "N",
       .group = Group::kTrainKeep,
       .help = "also save after every N optimizer steps; the last two are kept",
       .target = kWhole<&TrainOptions::save_every, 1, kMost>},
      {.names = "--async_save",
       .group = Group::kTrainKeep,
       .help = "save in the background: steps wait for a copy of the state only, not for the disk",
       .target = kFlag<&TrainOptions::async_save>},
      {.names = "--memory_checkpoint",
       .value = "K",
       .group = Group::kTrainKeep,
       .help = "after every K optimizer steps each rank copies its state into the memory of its "
               "node, from which a restarted job continues",
       .target = kWhole<&TrainOptions::memory_checkpoint, 1, 1'000'000>},
      {.names = "--resume",
       .value = "auto|TAG|none",
       .group = Group::kTrainKeep,
       .help = "default auto: from the newest complete checkpoint, if any",
       .target = kText<&TrainOptions::resume>},
      {.names = "--resume_from",
       .value = "FOLDER",
       .group = Group::kTrainKeep,
       .help = "start from a checkpoint of DeepSpeed or PyTorch, or of another run; later starts "
               "continue in --checkpoint_dir",
       .target = kFolder<&TrainOptions::resume_from>},
      {.names = "--load_module_only",
       .group = Group::kTrainKeep,
       .help = "load only the weights of that checkpoint, and start at step 1",
       .target = kFlag<&TrainOptions::load_module_only>},
      {.names = "--export_hf",
       .value = "DIR",
       .group = Group::kTrainKeep,
       .help = "write the weights as transformers reads them; models that Hugging Face has",
       .target = kFolder<&TrainOptions::export_hf>},
      {.names = "--metrics_jsonl",
       .value = "FILE",
       .group = Group::kTrainKeep,
       .help = "write one JSON object per step and per evaluation",
       .target = kFile<&TrainOptions::metrics_jsonl>},
      {.names = "--trace",
       .value = "DIR",
       .group = Group::kTrainKeep,
       .help = "write a Chrome trace of each rank",
       .target = kFolder<&TrainOptions::trace>},
      {.names = "--profile",
       .group = Group::kTrainKeep,
       .help = "print a table of what the third to fifth step spent time and memory on",
       .target = kFlag<&TrainOptions::profile>},
      {.names = "--profile_sort",
       .value = "self_time|total_time|device_time|memory|calls",
       .group = Group::kTrainKeep,
       .help = "the same as --profile, sorted by this column, greatest first",
       .target = kText<&TrainOptions::profile_sort>},
      HelpOption(Group::kOther),
      {.names = "--deepspeed",
       .group = Group::kAccepted,
       .help = "as in scripts for deepspeed: the engine is always on",
       .target = kIgnoredFlag},
  };
  return table;
}

const OptionTable& TuneOptionTable() {
  static const OptionTable table = {
      {.names = "--budget",
       .value = "S",
       .group = Group::kTune,
       .help = "seconds that the search may take",
       .target = {Budget, ValueKind::kSeconds},
       .default_value = "600"},
      {.names = "-o,--output",
       .value = "FILE",
       .group = Group::kTune,
       .help = "file of the recipe that is found; FILE.tune beside it has the finished trials, "
               "which the next search does not repeat; default: NAME.tuned.yaml",
       .target = kFile<&TuneOptions::output>},
      {.names = "--json",
       .group = Group::kTune,
       .help = "print JSON, for programs",
       .target = kFlag<&LaunchOptions::json>},
      DeepspeedConfig(Group::kTrainWhat),
      Set(Group::kTrainWhat),
      Data(Group::kTrainWhat),
      Plugin(Group::kTrainWhat),
      HelpOption(Group::kOther),
  };
  return table;
}

const OptionTable& PredictOptionTable() {
  static const OptionTable table = {
      {.names = "--checkpoint_dir",
       .value = "DIR",
       .group = Group::kPredict,
       .help = "checkpoint folder of the training",
       .target = kFolder<&TrainOptions::checkpoint_dir>},
      {.names = "--resume",
       .value = "auto|TAG|none",
       .group = Group::kPredict,
       .help = "which checkpoint; default auto: the newest complete one",
       .target = kText<&TrainOptions::resume>},
      InitWeights(Group::kPredict),
      {.names = "--output",
       .value = "FILE",
       .group = Group::kPredict,
       .help = "output file of the answers; default: stdout",
       .target = kFile<&TrainOptions::output>},
      Data(Group::kPredict),
      Plugin(Group::kPredict),
      DeepspeedConfig(Group::kPredict),
      Set(Group::kPredict),
      {.names = "--seed",
       .value = "S",
       .group = Group::kPredict,
       .help = "seed of the random draws",
       .target = kWhole<&TrainOptions::seed, 0, kMost>},
      Deterministic(Group::kPredict),

      {.names = "--prompt",
       .value = "TEXT",
       .group = Group::kPredictText,
       .help = "text that the model continues",
       .target = kText<&TrainOptions::prompt>},
      {.names = "--prompts",
       .value = "FILE",
       .group = Group::kPredictText,
       .help = "texts that the model continues, JSON lines with the key prompt; answers are JSON "
               "lines too",
       .target = kFile<&TrainOptions::prompts>},
      {.names = "--tokenizer",
       .value = "DIR",
       .group = Group::kPredictText,
       .help = "folder with tokenizer.json; default: that of --init_weights",
       .target = kFolder<&TrainOptions::tokenizer>},
      {.names = "--max_new_tokens",
       .value = "N",
       .group = Group::kPredictText,
       .help = "tokens to generate; default 128",
       .target = kWhole<&TrainOptions::max_new_tokens, 1, kMost>},
      {.names = "--temperature",
       .value = "T",
       .group = Group::kPredictText,
       .help = "randomness of the draws; 0: always the most likely token; default 1",
       .target = {Temperature, ValueKind::kNumber}},
      {.names = "--top_k",
       .value = "K",
       .group = Group::kPredictText,
       .help = "draw among the K most likely tokens; 0: all (default)",
       .target = kWhole<&TrainOptions::top_k, 0, kMost>},
      {.names = "--top_p",
       .value = "P",
       .group = Group::kPredictText,
       .help = "draw among the fewest most likely tokens that have probability P together; default "
               "1: all",
       .target = {TopP, ValueKind::kNumber}},
      {.names = "--stop",
       .value = "TEXT",
       .group = Group::kPredictText,
       .help = "end before this text; may be repeated",
       .target = AddStop,
       .repeatable = true},
      HelpOption(Group::kOther),
  };
  return table;
}

const OptionTable& BenchCommOptions() {
  static const OptionTable table = {
      command_options::Option(
          "--exchanges", "all_reduce,...",
          "all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, send_recv, "
          "parameter_server; default: all",
          PassToTrainer),
      command_options::Option("--ranks", "2,4", "numbers of ranks; default: 2, 4, 8 ... and all",
                              PassToTrainer),
      command_options::Option("--min_bytes", "N", "smallest size; default 1024",
                              {PassToTrainer, ValueKind::kNumber}),
      command_options::Option("--max_bytes", "N",
                              "largest size; default 67108864; each is 4 times the one before",
                              {PassToTrainer, ValueKind::kNumber}),
      command_options::Option("--iterations", "N",
                              "exchanges of each size that are timed; default 20",
                              {PassToTrainer, ValueKind::kNumber}),
      command_options::Option("--json_file", "FILE", "output file of rank 0 for programs",
                              {PassToTrainer, ValueKind::kFile}),
      command_options::Option("--svg_file", "FILE", "output file of rank 0 with a plot",
                              {PassToTrainer, ValueKind::kFile}),
      command_options::Option(
          "--predict", "PARAMETERS",
          "also print what a ring and a parameter server of 2 to 64 ranks would need for so many "
          "fp32 gradients, by the measured cost of send_recv",
          {PassToTrainer, ValueKind::kNumber}),
      command_options::Option("--bandwidth", "GBPS", "with --predict: of links of this many GB/s",
                              {PassToTrainer, ValueKind::kNumber}),
      command_options::Help()};
  return table;
}

}  // namespace dslaunch

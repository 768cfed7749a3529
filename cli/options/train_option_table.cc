// The options of `train` and `predict`.
#include "cli/options/option_draft.h"
#include "cli/options/option_table.h"
#include "cli/options/option_values.h"

namespace dslaunch {
namespace {

using Group = OptionGroup;

template <class T>
T& Field(Draft& draft, T TrainOptions::*member) {
  return draft.options.train.*member;
}
template <class T>
T& Field(Draft& draft, T Draft::*member) {
  return draft.*member;
}

template <auto member>
void Set(const Given&, Draft& draft) {
  Field(draft, member) = true;
}

template <auto member>
void Text(const Given& given, Draft& draft) {
  if (given.text.empty()) {
    throw CLI::ValidationError(given.name + " needs a value that is not empty");
  }
  Field(draft, member) = given.text;
}

template <auto member, int64_t min>
void Whole(const Given& given, Draft& draft) {
  Field(draft, member) = ReadWhole<int64_t>(given.name, given.text, min, int64_t{1} << 53);
}

void AddSet(const Given& given, Draft& draft) { draft.options.train.sets.push_back(given.text); }

void TimeLimit(const Given& given, Draft& draft) {
  constexpr double kMaxTimeLimitS = 1e9;
  draft.options.train.time_limit_s = ReadNumber(given.name, given.text, 0.001, kMaxTimeLimitS);
}

void Temperature(const Given& given, Draft& draft) {
  constexpr double kMaxTemperature = 1e6;
  draft.options.train.temperature = ReadNumber(given.name, given.text, 0, kMaxTemperature);
}

OptionSpec Help() {
  return {.names = "-h,--help",
          .group = Group::kOther,
          .help = "this text",
          .read = [](const Given&, Draft&) {},
          .common = true};
}

}  // namespace

const OptionTable& TrainOptionTable() {
  static const OptionTable table = {
      {.names = "--deepspeed_config",
       .value = "FILE",
       .group = Group::kTrainWhat,
       .help = "DeepSpeed's JSON, in place of the recipe's engine section",
       .read = Text<&TrainOptions::deepspeed_config>},
      {.names = "--set",
       .value = "KEY.PATH=VALUE",
       .group = Group::kTrainWhat,
       .help = "overrides any value of the recipe; may be repeated",
       .read = AddSet,
       .repeatable = true},
      {.names = "--data",
       .value = "PATH",
       .group = Group::kTrainWhat,
       .help = "overrides the recipe's data.path",
       .read = Text<&TrainOptions::data>},
      {.names = "--plugin",
       .value = "LIB.so",
       .group = Group::kTrainWhat,
       .help = "a model of your own, in place of the recipe's",
       .read = Text<&TrainOptions::plugin>},
      {.names = "--init_weights",
       .value = "PATH",
       .group = Group::kTrainWhat,
       .help = "a safetensors file, or a folder with model.safetensors",
       .read = Text<&TrainOptions::init_weights>},
      {.names = "--seed",
       .value = "S",
       .group = Group::kTrainWhat,
       .help = "for initial weights and data order",
       .read = Whole<&TrainOptions::seed, 0>},
      {.names = "--deterministic",
       .group = Group::kTrainWhat,
       .help = "only algorithms that repeat bit by bit",
       .read = Set<&TrainOptions::deterministic>},

      {.names = "--steps",
       .value = "N",
       .group = Group::kTrainLength,
       .help = "optimizer steps to run",
       .read = Whole<&TrainOptions::steps, 1>},
      {.names = "--epochs",
       .value = "N",
       .group = Group::kTrainLength,
       .help = "passes over the data; excludes --steps",
       .read = Whole<&TrainOptions::epochs, 1>},
      {.names = "--time_limit",
       .value = "S",
       .group = Group::kTrainLength,
       .help = "after S seconds finish the step, save, and end with code 85",
       .read = TimeLimit},
      {.names = "--eval_only",
       .group = Group::kTrainLength,
       .help = "train nothing: test the weights of the checkpoint, or of --init_weights",
       .read = Set<&Draft::eval_only>},
      {.names = "--plan_memory",
       .group = Group::kTrainLength,
       .help = "train nothing: say how much memory each rank would need",
       .read = Set<&Draft::plan_memory>},
      {.names = "--plan_pipeline",
       .group = Group::kTrainLength,
       .help = "train nothing: draw what each stage of the pipeline would do",
       .read = Set<&Draft::plan_pipeline>},
      {.names = "--pipeline_svg",
       .value = "FILE",
       .group = Group::kTrainLength,
       .help = "with it: draw it as a picture too",
       .read = Text<&TrainOptions::pipeline_svg>},

      {.names = "--compare_precision",
       .group = Group::kTrainLength,
       .help = "time and memory of the run in fp32, bf16 and fp16, side by side",
       .read = Set<&Draft::compare_precision>},

      {.names = "--checkpoint_dir",
       .value = "DIR",
       .group = Group::kTrainKeep,
       .help = "a folder that all nodes share; a checkpoint at the end",
       .read = Text<&TrainOptions::checkpoint_dir>},
      {.names = "--save_every",
       .value = "N",
       .group = Group::kTrainKeep,
       .help = "and after every N optimizer steps; the last two are kept",
       .read = Whole<&TrainOptions::save_every, 1>},
      {.names = "--async_save",
       .group = Group::kTrainKeep,
       .help = "steps wait for a copy of the state only, not for the disk",
       .read = Set<&TrainOptions::async_save>},
      {.names = "--resume",
       .value = "auto|TAG|none",
       .group = Group::kTrainKeep,
       .help = "default auto: from the newest whole checkpoint, if any",
       .read = Text<&TrainOptions::resume>},
      {.names = "--load_module_only",
       .group = Group::kTrainKeep,
       .help = "take only the weights of that checkpoint, and start at step 1",
       .read = Set<&TrainOptions::load_module_only>},
      {.names = "--export_hf",
       .value = "DIR",
       .group = Group::kTrainKeep,
       .help = "gpt2: the weights as Hugging Face's transformers reads them",
       .read = Text<&TrainOptions::export_hf>},
      {.names = "--metrics_jsonl",
       .value = "FILE",
       .group = Group::kTrainKeep,
       .help = "one JSON object per step",
       .read = Text<&TrainOptions::metrics_jsonl>},
      {.names = "--trace",
       .value = "DIR",
       .group = Group::kTrainKeep,
       .help = "a Chrome trace of each rank",
       .read = Text<&TrainOptions::trace>},
      {.names = "--profile",
       .group = Group::kTrainKeep,
       .help = "a table of what the third to fifth step spent time and memory on",
       .read = Set<&TrainOptions::profile>},
      {.names = "--profile_sort",
       .value = "self_time|total_time|memory|calls",
       .group = Group::kTrainKeep,
       .help = "the same, with the greatest of these first",
       .read = Text<&TrainOptions::profile_sort>},
      Help(),
  };
  return table;
}

const OptionTable& PredictOptionTable() {
  static const OptionTable table = {
      {.names = "--checkpoint_dir",
       .value = "DIR",
       .group = Group::kPredict,
       .help = "of the training",
       .read = Text<&TrainOptions::checkpoint_dir>},
      {.names = "--resume",
       .value = "auto|TAG|none",
       .group = Group::kPredict,
       .help = "which checkpoint; default auto: the newest whole one",
       .read = Text<&TrainOptions::resume>},
      {.names = "--init_weights",
       .value = "PATH",
       .group = Group::kPredict,
       .help = "a safetensors file, or a folder with model.safetensors",
       .read = Text<&TrainOptions::init_weights>},
      {.names = "--output",
       .value = "FILE",
       .group = Group::kPredict,
       .help = "where the answers go; default: stdout",
       .read = Text<&TrainOptions::output>},
      {.names = "--data",
       .value = "PATH",
       .group = Group::kPredict,
       .help = "overrides the recipe's data.path",
       .read = Text<&TrainOptions::data>},
      {.names = "--plugin",
       .value = "LIB.so",
       .group = Group::kPredict,
       .help = "a model of your own, in place of the recipe's",
       .read = Text<&TrainOptions::plugin>},
      {.names = "--deepspeed_config",
       .value = "FILE",
       .group = Group::kPredict,
       .help = "DeepSpeed's JSON, in place of the recipe's engine section",
       .read = Text<&TrainOptions::deepspeed_config>},
      {.names = "--set",
       .value = "KEY.PATH=VALUE",
       .group = Group::kPredict,
       .help = "overrides any value of the recipe; may be repeated",
       .read = AddSet,
       .repeatable = true},
      {.names = "--seed",
       .value = "S",
       .group = Group::kPredict,
       .help = "for what is drawn at random",
       .read = Whole<&TrainOptions::seed, 0>},
      {.names = "--deterministic",
       .group = Group::kPredict,
       .help = "only algorithms that repeat bit by bit",
       .read = Set<&TrainOptions::deterministic>},

      {.names = "--prompt",
       .value = "TEXT",
       .group = Group::kPredictText,
       .help = "what to go on from",
       .read = Text<&TrainOptions::prompt>},
      {.names = "--max_new_tokens",
       .value = "N",
       .group = Group::kPredictText,
       .help = "default 128",
       .read = Whole<&TrainOptions::max_new_tokens, 1>},
      {.names = "--temperature",
       .value = "T",
       .group = Group::kPredictText,
       .help = "0: always the likeliest token; default 1",
       .read = Temperature},
      {.names = "--top_k",
       .value = "K",
       .group = Group::kPredictText,
       .help = "draw among the K likeliest tokens; 0: all (default)",
       .read = Whole<&TrainOptions::top_k, 0>},
      Help(),
  };
  return table;
}

}  // namespace dslaunch

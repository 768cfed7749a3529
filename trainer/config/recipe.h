// Defines the recipe of a run: its model, data, length and engine settings. Users write YAML, which
// the launcher converts to JSON.
//
//   {"model":  {"type": a family of trainer/families, ...},
//    "data":   {"type": "idx" | "cifar" | "image_folder" | "csv" | "tokens" | "text" | "plugin",
//               "path": ..., ...},
//    "run":    {"epochs": N | "steps": N, "seed": 0, "eval_every": STEPS, ...},
//    "engine": a DeepSpeed configuration (engine_config.h),
//    "lora":   optional: adapters that are trained instead of the model (lora_config.h)}
//
// The keys have the names of the fields below. Users may give the path of a file for "engine"; the
// launcher replaces it by the file's content, because nodes need not have the file, and sets
// "engine_source" to its name, for messages. A recipe whose engine has no optimizer trains with
// AdamW and DeepSpeed's defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trainer/config/data_config.h"
#include "trainer/config/device_kind.h"
#include "trainer/config/engine_config.h"
#include "trainer/config/lora_config.h"
#include "trainer/config/model_family.h"
#include "trainer/config/profile_names.h"

namespace dslaunch {

// A metric from a plugin (dslaunch/plugin.h).
struct MetricConfig {
  std::string name;  // name of the metric, an entry of run.metrics
  // Path of the library (run.metrics_plugin); by default the library of the data set, or of the
  // model.
  std::string plugin;
  // JSON text of run.metrics_params.NAME, which the plugin reads; by default "{}".
  std::string params;
};

// Settings of run.profile. The presence of the section enables profiling, unless the section has
// "enabled": false.
struct ProfileConfig {
  bool enabled = true;
  int64_t wait = 1;    // number of optimizer steps at the start that are not profiled
  int64_t warmup = 1;  // number of following steps that warm up the profiler
  int64_t active = 3;  // number of following steps that are recorded
  ProfileSort sort_by = ProfileSort::kSelfTime;
  int64_t rows = 20;  // number of rows in the printed table
};

struct RunConfig {
  DeviceKind device = DeviceKind::kAuto;  // device of the ranks: "auto", "cuda" or "cpu"
  std::optional<int64_t> epochs;          // number of epochs; training needs either epochs or steps
  std::optional<int64_t> steps;           // number of optimizer steps
  uint64_t seed = 0;
  // Number of optimizer steps between evaluations. The end of the run is always evaluated.
  std::optional<int64_t> eval_every;
  // Metrics of a plugin, which evaluations compute in addition to the loss.
  std::vector<MetricConfig> metrics;
  // File to which rank 0 appends a JSON object for each step; empty to write no file.
  std::string metrics_jsonl;
  // Number of optimizer steps between copies of each rank's state in the memory of its node; 0 to
  // make no copies.
  int64_t memory_checkpoint = 0;
  // Folder of checkpoints, which all nodes share; empty to save none. The next five settings
  // require it.
  std::string checkpoint_dir;
  // Number of optimizer steps between checkpoints. A checkpoint is always saved at the end.
  std::optional<int64_t> save_every;
  std::string resume = "auto";  // "auto", "none", or a tag such as "step_000120"
  // Number of checkpoints of a run that are kept; older checkpoints are removed.
  int64_t keep_checkpoints = 2;
  // True if steps wait only for a copy in memory, not for the disk.
  bool async_save = false;
  bool load_module_only = false;  // true to start at step 1 with the weights of a checkpoint
  std::string resume_from;  // checkpoint to start from, which another program may have written
  // Initial weights: a safetensors file, or a folder with model.safetensors.
  std::string init_weights;
  // Folder to which config.json and model.safetensors are written at the end.
  std::string export_hf;
  std::string trace;  // folder for a Chrome trace of each rank; empty to write no traces
  // Time in seconds after which the run finishes its step, saves and exits with 85.
  std::optional<double> time_limit_s;
  double collective_timeout_s = 600;  // time limit in seconds of a wait for other ranks
  // True to use only algorithms whose results are bitwise reproducible.
  bool deterministic = false;
  // True if products in fp32 on GPUs round their factors to TF32.
  bool tf32 = false;
  // Peak rate of one rank's hardware, for mfu in the metrics. If nullopt, the rate is looked up in
  // a table of GPU names.
  std::optional<double> peak_tflops;
  std::optional<ProfileConfig> profile;
  // Number of steps between comparisons of the ranks' weights; nullopt to compare never.
  std::optional<int64_t> check_replicas_every;
  // How losses are averaged. "micro_batch": every micro-batch's mean has equal weight, as in
  // DeepSpeed. "tokens", or "samples" for data without tokens: every token or sample of the global
  // batch has equal weight.
  bool normalize_by_targets = false;  // false for run.loss_normalization "micro_batch"

  enum class Mode {
    kTrain,
    kEvaluate,
    kPredict,
    kPlanMemory,
    kPlanPipeline,
    kComparePrecision,
    kTrial
  };
  // Value of run.mode: "train", "evaluate", "predict", "plan_memory", "plan_pipeline",
  // "compare_precision" or "trial".
  Mode mode = Mode::kTrain;
  // Number of ranks to plan for, and their maximum number on a node; for plan_memory. If nullopt,
  // the job's numbers are used.
  std::optional<int64_t> ranks, ranks_per_node;
  // File for the drawing in SVG, for plan_pipeline; empty to write no file.
  std::string pipeline_svg;
  std::string predictions;  // JSON lines file for the output of predict; empty for stdout
  // The fields up to `stop` are for models that take tokens.

  // Folder with tokenizer.json. If empty, init_weights is used, or tokens are bytes.
  std::string tokenizer;
  // JSON lines file of documents or questions to evaluate; empty to evaluate the data.
  std::string eval_file;
  std::string prompt;   // text that the model continues, for predict
  std::string prompts;  // JSON lines file of such texts, for predict; excludes `prompt`
  int64_t max_new_tokens = 128;
  double temperature = 1.0;  // divisor of the logits; 0 to always choose the most likely token
  int64_t top_k = 0;         // number of most likely tokens to choose from; 0 for all
  double top_p = 1.0;        // total probability of the tokens to choose from; 1 for all
  // Strings at which a text ends, and which are not part of the text.
  std::vector<std::string> stop;
  // Returns whether the run evaluates or continues texts from other sources than the section
  // "data".
  bool has_own_texts() const {
    return mode == Mode::kEvaluate ? !eval_file.empty()
                                   : mode == Mode::kPredict && !(prompt.empty() && prompts.empty());
  }
};

struct Recipe {
  ModelConfig model;
  std::string model_text;  // JSON text of the section `model`
  // Model, data, engine and seed as JSON. Runs with the same identity are the same run, even if one
  // is longer or saves into another folder.
  std::string identity;
  DataConfig data;
  RunConfig run;
  EngineConfig engine;
  // Adapters that are trained while all other parameters are frozen. If nullopt, the model itself
  // is trained.
  std::optional<LoraConfig> lora;
  // The engine in fp32, bf16 and fp16, for compare_precision.
  std::vector<EngineConfig> engines;
};

// Reads only the section "model" of a recipe. Throws TrainError kBadInput, naming `source` and the
// key.
ModelConfig ParseModelSection(const std::string& json_text, const std::string& source);
// Reads a whole recipe. `ranks` is the world size, unless the recipe has run.ranks. Throws
// TrainError kBadInput, naming `source` and the key.
Recipe ParseRecipe(const std::string& json_text, const std::string& source, int64_t ranks);

}  // namespace dslaunch

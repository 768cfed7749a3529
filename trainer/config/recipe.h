// A recipe: what to train, on what, for how long and with which engine settings. Users write YAML;
// the launcher hands it over as JSON.
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

// A metric that the user has written (dslaunch/plugin.h).
struct MetricConfig {
  std::string name;    // name of an entry of run.metrics
  std::string plugin;  // run.metrics_plugin; default: the library of the data set, or of the model
  std::string params;  // run.metrics_params.NAME as JSON text, default "{}"; the plugin reads it
};

// run.profile. The presence of the section enables it, unless it has "enabled": false.
struct ProfileConfig {
  bool enabled = true;
  int64_t wait = 1;    // optimizer steps at the start that are not profiled
  int64_t warmup = 1;  // following steps that warm the profiler up
  int64_t active = 3;  // following steps that are recorded
  ProfileSort sort_by = ProfileSort::kSelfTime;
  int64_t rows = 20;  // rows of the printed table
};

struct RunConfig {
  DeviceKind device = DeviceKind::kAuto;  // "auto" | "cuda" | "cpu"
  std::optional<int64_t> epochs;          // training needs epochs or steps
  std::optional<int64_t> steps;           // optimizer steps
  uint64_t seed = 0;
  // Optimizer steps between evaluations; there is always an evaluation at the end.
  std::optional<int64_t> eval_every;
  // Metrics of a plugin, which evaluations compute besides the loss.
  std::vector<MetricConfig> metrics;
  std::string metrics_jsonl;  // file to which rank 0 appends an object for each step; empty: none
  // Optimizer steps between copies of each rank's state in the memory of its node; 0: no copies.
  int64_t memory_checkpoint = 0;
  std::string checkpoint_dir;  // shared by all nodes; empty: no checkpoints. The next five need it
  std::optional<int64_t> save_every;  // optimizer steps; there is always a checkpoint at the end
  std::string resume = "auto";        // "auto", "none", or a tag such as "step_000120"
  int64_t keep_checkpoints = 2;   // number of checkpoints kept of one run; older ones are removed
  bool async_save = false;        // steps wait for a copy in memory only, not for the disk
  bool load_module_only = false;  // start at step 1 with the weights of a checkpoint
  std::string resume_from;        // start from this checkpoint, which may be another program's
  std::string init_weights;       // a safetensors file or a folder with model.safetensors
  std::string export_hf;          // folder for config.json and model.safetensors
  std::string trace;              // folder for a Chrome trace of each rank; empty: no traces
  std::optional<double> time_limit_s;  // time after which to finish the step, save and exit with 85
  double collective_timeout_s = 600;   // limit of a wait for other ranks
  bool deterministic = false;  // whether to use only algorithms whose results repeat bit by bit
  bool tf32 = false;           // whether fp32 products on GPUs round their factors to TF32
  // Peak rate of one rank's hardware, for mfu in the metrics; nullopt: from a table of GPU names.
  std::optional<double> peak_tflops;
  std::optional<ProfileConfig> profile;
  std::optional<int64_t> check_replicas_every;  // steps between comparisons of the ranks' weights
  // "micro_batch": every micro-batch's mean has equal weight, as in DeepSpeed. "tokens", or
  // "samples" for data without tokens: every token or sample of the global batch has equal weight.
  bool normalize_by_targets =
      false;  // run.loss_normalization: "micro_batch" | "tokens" | "samples"

  enum class Mode {
    kTrain,
    kEvaluate,
    kPredict,
    kPlanMemory,
    kPlanPipeline,
    kComparePrecision,
    kTrial
  };
  // run.mode: "train" | "evaluate" | "predict" | "plan_memory" | "plan_pipeline" |
  // "compare_precision" | "trial"
  Mode mode = Mode::kTrain;
  // plan_memory: number of ranks, and maximum on a node; nullopt: the job's numbers.
  std::optional<int64_t> ranks, ranks_per_node;
  std::string pipeline_svg;  // plan_pipeline: SVG file for the drawing; empty: no file
  std::string predictions;   // predict: JSON lines file for the output; empty: stdout
  // For models that take tokens:
  std::string tokenizer;  // folder with tokenizer.json; empty: init_weights, or tokens are bytes
  std::string eval_file;  // evaluate: JSON lines of documents or questions; empty: the data
  std::string prompt;     // predict: text that the model continues
  std::string prompts;    // predict: JSON lines of such texts; not together with `prompt`
  int64_t max_new_tokens = 128;
  double temperature = 1.0;       // 0: always the most likely token
  int64_t top_k = 0;              // number of most likely tokens to choose from; 0: all
  double top_p = 1.0;             // total probability of the tokens to choose from; 1: all
  std::vector<std::string> stop;  // strings at which a text ends; they are not part of it
  // Whether the run evaluates or continues texts other than the data.
  bool has_own_texts() const {
    return mode == Mode::kEvaluate ? !eval_file.empty()
                                   : mode == Mode::kPredict && !(prompt.empty() && prompts.empty());
  }
};

struct Recipe {
  ModelConfig model;
  std::string model_text;  // the section `model` as JSON
  // Model, data, engine and seed as JSON. Runs with the same text are the same run, even if one is
  // longer or saves elsewhere.
  std::string identity;
  DataConfig data;
  RunConfig run;
  EngineConfig engine;
  // The adapters that are trained, while all other parameters are frozen. nullopt: the model is
  // trained.
  std::optional<LoraConfig> lora;
  // compare_precision: the engine in fp32, bf16 and fp16.
  std::vector<EngineConfig> engines;
};

// Read a recipe, or only its section "model". `ranks` is the world size; run.ranks has priority.
// Throw TrainError kBadInput, naming `source` and the key.
ModelConfig ParseModelSection(const std::string& json_text, const std::string& source);
Recipe ParseRecipe(const std::string& json_text, const std::string& source, int64_t ranks);

}  // namespace dslaunch

// A recipe: what to train, on what, for how long and with which engine settings. Users write YAML;
// the launcher hands it over as JSON.
//
//   {"model":  {"type": "mlp" | "cnn", "hidden_size": 128, "num_classes": 10},
//    "data":   {"type": "idx", "path": FOLDER, "shuffle": true, "drop_last": false},
//    "run":    {"epochs": N | "steps": N, "seed": 0, "eval_every": STEPS, "metrics_jsonl": FILE,
//               "checkpoint_dir": FOLDER, "save_every": STEPS, "resume": "auto" | TAG | "none",
//               "keep_checkpoints": 2},
//    "engine": a DeepSpeed configuration}
//
// The engine's keys keep DeepSpeed 0.19.6's names, defaults and meaning; what is not implemented is
// refused by name. The one key of our own is optimizer.param_groups (optimizer_config.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/config/optimizer_config.h"

namespace dslaunch {

struct ModelConfig {
  enum class Type { kMlp, kCnn };
  Type type = Type::kMlp;
  int64_t hidden_size = 128;  // units of the layer before the last
  int64_t num_classes = 10;
};

struct DataConfig {
  std::string path;  // a folder with the four IDX files of an MNIST-like data set
  bool shuffle = true;
  bool drop_last =
      false;  // leave samples out, instead of repeating some, where ranks do not divide them
};

struct RunConfig {
  std::optional<int64_t> epochs;  // exactly one of these two
  std::optional<int64_t> steps;   // optimizer steps
  uint64_t seed = 0;
  std::optional<int64_t>
      eval_every;             // optimizer steps between evaluations; there is always one at the end
  std::string metrics_jsonl;  // rank 0 appends one object per step here; empty: nowhere
  std::string checkpoint_dir;  // shared by all nodes; empty: no checkpoints. The rest needs it
  std::optional<int64_t> save_every;  // optimizer steps; there is always a checkpoint at the end
  std::string resume = "auto";        // or "none", or a tag such as "step_000120"
  int64_t keep_checkpoints = 2;       // of one run; older ones are removed
};

// train_batch_size == micro_batch_size * accumulation_steps * ranks.
struct BatchConfig {
  int64_t train_batch_size = 0;    // samples of one optimizer step, over all ranks
  int64_t micro_batch_size = 0;    // samples of one forward pass on one rank
  int64_t accumulation_steps = 1;  // micro-batches of one optimizer step on one rank
};

struct EngineConfig {
  BatchConfig batch;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  double gradient_clipping = 1.0;  // largest L2 norm of the gradient; 0: no limit
  int64_t steps_per_print = 0;     // 0: no line per step
  bool dataloader_drop_last = false;
};

struct Recipe {
  ModelConfig model;
  DataConfig data;
  RunConfig run;
  EngineConfig engine;
};

// Any two of the three sizes give the third; a train or micro batch size alone means no
// accumulation. Throws kBadInput with the arithmetic where they contradict each other.
BatchConfig ResolveBatch(std::optional<int64_t> train_batch_size,
                         std::optional<int64_t> micro_batch_size,
                         std::optional<int64_t> accumulation_steps, int64_t ranks,
                         const std::string& source);

// Throws TrainError kBadInput, naming `source` and the key. `ranks` is the world size.
Recipe ParseRecipe(const std::string& json_text, const std::string& source, int64_t ranks);

}  // namespace dslaunch

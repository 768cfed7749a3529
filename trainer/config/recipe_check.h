// Checks a whole recipe. The front end checks everything that does not depend on a node before any
// rank starts, and refuses settings that exclude each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dslaunch {

class JsonObject;
struct Recipe;
struct RunConfig;

struct RecipeProblem {
  std::string source;  // engine's file if the key is in that file; otherwise empty
  // Path of the key, such as "engine.fp16.loss_scale"; empty if the whole text has the problem.
  std::string key;
  std::string message;  // one sentence with the key and the remedy
};

// Returns the problem for which ParseRecipe, and therefore the trainer, refuses the recipe; nullopt
// if there is none. `ranks` is the world size; 0 if unknown, so that batch sizes are not compared
// with it. `ranks_of_nodes` has the number of ranks of each node, in the order of the ranks; empty
// if unknown.
std::optional<RecipeProblem> CheckRecipe(const std::string& json_text, int64_t ranks,
                                         const std::vector<int>& ranks_of_nodes = {});

// Settings of a recipe that `dslaunch tune` varies, as the trainer reads them.
struct TunableSettings {
  int64_t train_batch_size = 0;
  int64_t micro_batch_size = 0;
  int64_t accumulation_steps = 1;
  int64_t stages = 1;       // number of stages of the pipeline
  int64_t tensor_size = 1;  // number of ranks that divide each layer
  int zero_stage = 0;
  bool offloads_optimizer = false;  // true if the optimizer's state is in main memory or in files
  bool offloads_parameters = false;
  int64_t number_checkpoints = 0;   // activation_checkpointing.number_checkpoints
  int64_t checkpoint_interval = 0;  // pipeline.activation_checkpoint_interval
};

// Returns the settings; nullopt if CheckRecipe finds a problem in the recipe.
std::optional<TunableSettings> ReadTunableSettings(const std::string& json_text, int64_t ranks);

// Refuses keys of the section `run` that its mode excludes or that contradict each other. Throws
// kBadInput, naming the key.
void CheckRun(JsonObject& object, const RunConfig& run);

// Refuses settings of the section `run` that the engine's settings exclude. Throws kBadInput,
// naming the key.
void CheckRunFitsEngine(const JsonObject& run, const Recipe& recipe);

}  // namespace dslaunch

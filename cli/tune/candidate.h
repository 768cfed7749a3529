// Defines the configurations among which `dslaunch tune` searches: one value for each axis. All
// configurations train the same global batch on the same ranks. All functions are pure.
//
// An axis is a row of the table in candidate.cc, with its values, the keys of the engine that it
// sets, and its form in tables. A new axis needs only a new row.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace dslaunch {

enum class Axis : size_t { kMicroBatch, kZeroStage, kRecompute, kOffload, kPipeline, kTensor };
inline constexpr size_t kAxisCount = 6;

struct Candidate {
  // The values, indexed by Axis: samples of a micro-batch; ZeRO stage; 1 if activations are
  // recomputed, else 0; states in main memory (1: the optimizer's state, 2: parameters too); stages
  // of the pipeline; number of ranks that divide each layer.
  std::array<int64_t, kAxisCount> values = {1, 0, 0, 0, 1, 1};

  int64_t& operator[](Axis axis) { return values[static_cast<size_t>(axis)]; }
  int64_t operator[](Axis axis) const { return values[static_cast<size_t>(axis)]; }
  auto operator<=>(const Candidate&) const = default;
};

// The subject of a search: a recipe, and the nodes on which it is trained.
struct TuneProblem {
  int64_t ranks = 1;
  int64_t nodes = 1;
  // Number of ranks on each node, in rank order; empty if not known.
  std::vector<int> ranks_of_nodes = {};
  int64_t global_batch = 1;
  bool on_gpu = false;  // whether ranks compute on GPUs
  Candidate recipe;     // the recipe's own configuration
  // The recipe's settings for recomputation: number and interval of activation checkpoints; 0 if
  // the recipe does not set them.
  int64_t number_checkpoints = 0;
  int64_t checkpoint_interval = 0;
  bool zero_is_flag = false;  // whether the recipe's zero_optimization is true or false
};

// Returns the problem of a recipe, given as JSON, without on_gpu and ranks_of_nodes. Precondition:
// CheckRecipe accepts the recipe for this number of ranks.
TuneProblem MakeTuneProblem(const std::string& recipe_json, int64_t ranks, int64_t nodes);

// Returns the number of replicas, which are groups of ranks that train on different samples.
int64_t ReplicasOf(const TuneProblem& problem, const Candidate& candidate);
// Returns the number of micro-batches in a step on each replica.
int64_t AccumulationOf(const TuneProblem& problem, const Candidate& candidate);

// Largest number of candidates of a search.
inline constexpr size_t kMaxCandidates = 4096;
// Returns all candidates that divide ranks and batch without a remainder, the recipe's own
// candidate first, at most kMaxCandidates. Omits candidates for which `is_valid` returns false,
// and candidates that only cost time: ZeRO with a single replica and no offload.
std::vector<Candidate> CandidateSpace(const TuneProblem& problem,
                                      const std::function<bool(const Candidate&)>& is_valid);

// Returns whether the trainer accepts the recipe with the candidate's keys.
bool IsValidRecipe(const TuneProblem& problem, const Candidate& candidate,
                   const std::string& recipe_json);

// A key of the recipe and its value as JSON, such as "engine.zero_optimization.stage" and "2".
struct RecipeKey {
  std::string path;
  std::string json;
  bool operator==(const RecipeKey&) const = default;
};

// Returns the keys in which the candidate differs from the recipe; empty for the recipe's own
// candidate.
std::vector<RecipeKey> KeysOf(const TuneProblem& problem, const Candidate& candidate);

// Returns the recipe, given as JSON, with these keys set.
std::string WithKeys(const std::string& recipe_json, const std::vector<RecipeKey>& keys);

// Returns a measure of the complexity of the configuration for its user; 0 for the simplest
// configuration.
int64_t ComplexityOf(const Candidate& candidate);

// Returns the headings of a table's columns, one for each axis.
std::vector<std::string> AxisHeads();

// Returns the cells of a candidate below AxisHeads(), such as "8 x 4", "2", "yes", "no", "1", "1".
std::vector<std::string> AxisCells(const TuneProblem& problem, const Candidate& candidate);
// Returns a text such as "micro-batch 8 x 4, ZeRO 2, recompute", without the plainest values.
std::string CandidateText(const TuneProblem& problem, const Candidate& candidate);

// Returns the name of an axis in JSON, such as "micro_batch".
const char* NameOf(Axis axis);

}  // namespace dslaunch

#include "cli/tune/candidate.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "trainer/config/recipe_check.h"

namespace dslaunch {
namespace {

using Json = nlohmann::json;
using Keys = std::vector<RecipeKey>;

// Value of number_checkpoints that exceeds the number of layers.
constexpr int64_t kEachLayer = 1000;
constexpr int64_t kMostStages = 64;
constexpr double kMicroBatchRatio = 1.4;  // least ratio of two micro-batches that are both tried

struct AxisRow {
  const char* name;
  const char* head;
  bool divides_ranks;  // whether the axis's value is the number of ranks that share a replica
  int64_t complexity;  // complexity added by each step away from the simplest value
  std::vector<int64_t> (*values)(const TuneProblem& problem);  // values of the axis, ascending
  // Adds the keys in which the candidate differs from the recipe.
  void (*keys)(const TuneProblem& problem, const Candidate& candidate, Keys& keys);
  std::string (*cell)(const TuneProblem& problem, const Candidate& candidate);
  // Returns the value as text, such as "ZeRO 2"; empty for the plainest value.
  std::string (*text)(const TuneProblem& problem, const Candidate& candidate);
};

std::vector<int64_t> Divisors(int64_t number) {
  std::vector<int64_t> small, large;
  for (int64_t i = 1; i * i <= number; ++i) {
    if (number % i != 0) continue;
    small.push_back(i);
    if (i != number / i) large.push_back(number / i);
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  return small;
}

std::vector<int64_t> MicroBatches(const TuneProblem& problem) {
  const int64_t own = problem.recipe[Axis::kMicroBatch];
  std::vector<int64_t> values;
  for (const int64_t value : Divisors(problem.global_batch)) {
    const bool apart = values.empty() || static_cast<double>(value) >=
                                             kMicroBatchRatio * static_cast<double>(values.back());
    if (apart || value == own) values.push_back(value);
  }
  return values;
}

void AddMicroBatch(const TuneProblem& problem, const Candidate& candidate, Keys& keys) {
  const int64_t micro = candidate[Axis::kMicroBatch];
  const int64_t steps = AccumulationOf(problem, candidate);
  if (micro == problem.recipe[Axis::kMicroBatch] &&
      steps == AccumulationOf(problem, problem.recipe)) {
    return;
  }
  keys.push_back({"engine.train_batch_size", std::to_string(problem.global_batch)});
  keys.push_back({"engine.train_micro_batch_size_per_gpu", std::to_string(micro)});
  keys.push_back({"engine.gradient_accumulation_steps", std::to_string(steps)});
}

std::string MicroBatchCell(const TuneProblem& problem, const Candidate& candidate) {
  return std::to_string(candidate[Axis::kMicroBatch]) + " x " +
         std::to_string(AccumulationOf(problem, candidate));
}

template <Axis axis>
std::string NumberCell(const TuneProblem&, const Candidate& candidate) {
  return std::to_string(candidate[axis]);
}

void AddZero(const TuneProblem& problem, const Candidate& candidate, Keys& keys) {
  const int64_t stage = candidate[Axis::kZeroStage];
  const bool differs = stage != problem.recipe[Axis::kZeroStage] ||
                       candidate[Axis::kOffload] != problem.recipe[Axis::kOffload];
  if (!differs) return;
  if (problem.zero_is_flag) {
    keys.push_back({"engine.zero_optimization", Json{{"stage", stage}}.dump()});
  } else {
    keys.push_back({"engine.zero_optimization.stage", std::to_string(stage)});
  }
}

// Adds the keys of recomputation. A pipeline and a whole model use different keys, which exclude
// each other.
void AddRecompute(const TuneProblem& problem, const Candidate& candidate, Keys& keys) {
  const bool whole = candidate[Axis::kPipeline] == 1;
  const bool recomputes = candidate[Axis::kRecompute] == 1;
  const bool as_recipe = candidate[Axis::kRecompute] == problem.recipe[Axis::kRecompute] &&
                         whole == (problem.recipe[Axis::kPipeline] == 1);
  if (as_recipe) return;
  const auto or_else = [](int64_t own, int64_t other) { return own > 0 ? own : other; };
  const int64_t parts = recomputes && whole ? or_else(problem.number_checkpoints, kEachLayer) : 0;
  const int64_t interval = recomputes && !whole ? or_else(problem.checkpoint_interval, 1) : 0;
  if (parts != problem.number_checkpoints) {
    keys.push_back({"engine.activation_checkpointing.number_checkpoints", std::to_string(parts)});
  }
  if (interval != problem.checkpoint_interval) {
    keys.push_back({"engine.pipeline.activation_checkpoint_interval", std::to_string(interval)});
  }
}

void AddOffload(const TuneProblem& problem, const Candidate& candidate, Keys& keys) {
  const int64_t level = candidate[Axis::kOffload], own = problem.recipe[Axis::kOffload];
  const auto add = [&](const char* key, int64_t from) {
    if ((level >= from) == (own >= from)) return;
    const Json value = {{"device", level >= from ? "cpu" : "none"}};
    keys.push_back({std::string("engine.zero_optimization.") + key, value.dump()});
  };
  add("offload_optimizer", 1);
  add("offload_param", 2);
}

std::string OffloadWord(int64_t level) {
  return level == 0 ? "no" : level == 1 ? "optimizer" : "all states";
}

void AddPipeline(const TuneProblem& problem, const Candidate& candidate, Keys& keys) {
  const int64_t stages = candidate[Axis::kPipeline];
  if (stages == problem.recipe[Axis::kPipeline]) return;
  keys.push_back({"engine.pipeline.stages", std::to_string(stages)});
}

void AddTensor(const TuneProblem& problem, const Candidate& candidate, Keys& keys) {
  const int64_t parts = candidate[Axis::kTensor];
  if (parts == problem.recipe[Axis::kTensor]) return;
  keys.push_back({"engine.tensor_parallel.autotp_size", std::to_string(parts)});
}

std::vector<int64_t> PipelineSizes(const TuneProblem& problem) {
  std::vector<int64_t> sizes = Divisors(problem.ranks);
  std::erase_if(sizes, [](int64_t size) { return size > kMostStages; });
  return sizes;
}

// Returns the rows of all axes, in the order of Axis.
const std::array<AxisRow, kAxisCount>& AxisTable() {
  static const std::array<AxisRow, kAxisCount> kRows = {{
      {"micro_batch", "micro-batch", false, 0, MicroBatches, AddMicroBatch, MicroBatchCell,
       [](const TuneProblem& problem, const Candidate& candidate) {
         return "micro-batch " + MicroBatchCell(problem, candidate);
       }},
      {"zero_stage", "ZeRO", false, 2,
       [](const TuneProblem&) {
         return std::vector<int64_t>{0, 1, 2, 3};
       },
       AddZero, NumberCell<Axis::kZeroStage>,
       [](const TuneProblem&, const Candidate& candidate) {
         const int64_t stage = candidate[Axis::kZeroStage];
         return stage == 0 ? "" : "ZeRO " + std::to_string(stage);
       }},
      {"recompute", "recompute", false, 3,
       [](const TuneProblem&) {
         return std::vector<int64_t>{0, 1};
       },
       AddRecompute,
       [](const TuneProblem&, const Candidate& candidate) {
         return std::string(candidate[Axis::kRecompute] == 1 ? "yes" : "no");
       },
       [](const TuneProblem&, const Candidate& candidate) {
         return std::string(candidate[Axis::kRecompute] == 1 ? "recompute" : "");
       }},
      {"offload", "offload", false, 5,
       [](const TuneProblem& problem) {
         // Offload has no effect on CPUs, so only 0 is tried.
         return problem.on_gpu ? std::vector<int64_t>{0, 1, 2} : std::vector<int64_t>{0};
       },
       AddOffload,
       [](const TuneProblem&, const Candidate& candidate) {
         return OffloadWord(candidate[Axis::kOffload]);
       },
       [](const TuneProblem&, const Candidate& candidate) {
         const int64_t level = candidate[Axis::kOffload];
         return level == 0 ? "" : "offload " + OffloadWord(level);
       }},
      {"pipeline", "pipeline", true, 8, PipelineSizes, AddPipeline, NumberCell<Axis::kPipeline>,
       [](const TuneProblem&, const Candidate& candidate) {
         const int64_t stages = candidate[Axis::kPipeline];
         return stages == 1 ? "" : "pipeline " + std::to_string(stages);
       }},
      // IsValidRecipe omits sizes that the model or the nodes do not allow, so all divisors are
      // listed.
      {"tensor", "tensor", true, 9,
       [](const TuneProblem& problem) { return Divisors(problem.ranks); }, AddTensor,
       NumberCell<Axis::kTensor>,
       [](const TuneProblem&, const Candidate& candidate) {
         const int64_t parts = candidate[Axis::kTensor];
         return parts == 1 ? "" : "tensor " + std::to_string(parts);
       }},
  }};
  return kRows;
}

bool Divides(const TuneProblem& problem, const Candidate& candidate) {
  int64_t share = 1;
  for (size_t axis = 0; axis < kAxisCount; ++axis) {
    if (AxisTable()[axis].divides_ranks) share *= candidate.values[axis];
  }
  if (share > problem.ranks || problem.ranks % share != 0) return false;
  const int64_t samples = problem.ranks / share * candidate[Axis::kMicroBatch];
  return samples <= problem.global_batch && problem.global_batch % samples == 0;
}

// Returns whether the offload of a candidate has an effect. Offload is a setting of ZeRO, and
// parameters are offloaded only at stage 3.
bool IsUseful(const TuneProblem& problem, const Candidate& candidate) {
  const int64_t stage = candidate[Axis::kZeroStage], offload = candidate[Axis::kOffload];
  if (offload > 0 && stage == 0) return false;
  if (offload > 1 && stage < 3) return false;
  return stage == 0 || offload > 0 || ReplicasOf(problem, candidate) > 1;
}

// Sets the value at `path`, a chain of keys, in `recipe`. Replaces other values on the path by
// objects.
void SetKey(Json& recipe, std::string_view path, Json value) {
  Json* at = &recipe;
  while (true) {
    const size_t dot = std::min(path.find('.'), path.size());
    if (!at->is_object()) *at = Json::object();
    at = &(*at)[std::string(path.substr(0, dot))];
    if (dot == path.size()) break;
    path.remove_prefix(dot + 1);
  }
  *at = std::move(value);
}

}  // namespace

TuneProblem MakeTuneProblem(const std::string& recipe_json, int64_t ranks, int64_t nodes) {
  const TunableSettings own = ReadTunableSettings(recipe_json, ranks).value_or(TunableSettings());
  TuneProblem problem;
  problem.ranks = ranks;
  problem.nodes = nodes;
  problem.global_batch = own.train_batch_size;
  problem.recipe[Axis::kMicroBatch] = own.micro_batch_size;
  problem.recipe[Axis::kZeroStage] = own.zero_stage;
  problem.recipe[Axis::kRecompute] =
      own.number_checkpoints > 0 || own.checkpoint_interval > 0 ? 1 : 0;
  problem.recipe[Axis::kOffload] = own.offloads_parameters ? 2 : (own.offloads_optimizer ? 1 : 0);
  problem.recipe[Axis::kPipeline] = own.stages;
  problem.recipe[Axis::kTensor] = own.tensor_size;
  problem.number_checkpoints = own.number_checkpoints;
  problem.checkpoint_interval = own.checkpoint_interval;
  const Json recipe = Json::parse(recipe_json, nullptr, false);
  const Json::json_pointer zero("/engine/zero_optimization");
  problem.zero_is_flag = recipe.contains(zero) && recipe[zero].is_boolean();
  return problem;
}

int64_t ReplicasOf(const TuneProblem& problem, const Candidate& candidate) {
  int64_t replicas = problem.ranks;
  for (size_t axis = 0; axis < kAxisCount; ++axis) {
    if (AxisTable()[axis].divides_ranks) replicas /= candidate.values[axis];
  }
  return std::max<int64_t>(replicas, 1);
}

int64_t AccumulationOf(const TuneProblem& problem, const Candidate& candidate) {
  return problem.global_batch / (ReplicasOf(problem, candidate) * candidate[Axis::kMicroBatch]);
}

std::vector<Candidate> CandidateSpace(const TuneProblem& problem,
                                      const std::function<bool(const Candidate&)>& is_valid) {
  std::vector<Candidate> space = {problem.recipe};
  std::vector<Candidate> combined = {Candidate()};
  for (size_t axis = 0; axis < kAxisCount; ++axis) {
    std::vector<Candidate> longer;
    for (const Candidate& before : combined) {
      for (const int64_t value : AxisTable()[axis].values(problem)) {
        longer.push_back(before);
        longer.back().values[axis] = value;
      }
    }
    combined = std::move(longer);
  }
  for (const Candidate& candidate : combined) {
    if (space.size() == kMaxCandidates) break;
    if (candidate == problem.recipe || !Divides(problem, candidate)) continue;
    if (IsUseful(problem, candidate) && is_valid(candidate)) space.push_back(candidate);
  }
  return space;
}

bool IsValidRecipe(const TuneProblem& problem, const Candidate& candidate,
                   const std::string& recipe_json) {
  return !CheckRecipe(WithKeys(recipe_json, KeysOf(problem, candidate)), problem.ranks,
                      problem.ranks_of_nodes);
}

std::vector<RecipeKey> KeysOf(const TuneProblem& problem, const Candidate& candidate) {
  Keys keys;
  for (const AxisRow& row : AxisTable()) row.keys(problem, candidate, keys);
  return keys;
}

std::string WithKeys(const std::string& recipe_json, const std::vector<RecipeKey>& keys) {
  Json recipe = Json::parse(recipe_json, nullptr, false);
  for (const RecipeKey& key : keys) {
    SetKey(recipe, key.path, Json::parse(key.json, nullptr, false));
  }
  return recipe.dump();
}

int64_t ComplexityOf(const Candidate& candidate) {
  const Candidate plain;
  int64_t complexity = 0;
  for (size_t axis = 0; axis < kAxisCount; ++axis) {
    complexity += AxisTable()[axis].complexity * (candidate.values[axis] - plain.values[axis]);
  }
  return complexity;
}

std::vector<std::string> AxisHeads() {
  std::vector<std::string> heads;
  for (const AxisRow& row : AxisTable()) heads.emplace_back(row.head);
  return heads;
}

std::vector<std::string> AxisCells(const TuneProblem& problem, const Candidate& candidate) {
  std::vector<std::string> cells;
  for (const AxisRow& row : AxisTable()) cells.push_back(row.cell(problem, candidate));
  return cells;
}

std::string CandidateText(const TuneProblem& problem, const Candidate& candidate) {
  std::string text;
  for (const AxisRow& row : AxisTable()) {
    const std::string part = row.text(problem, candidate);
    if (!part.empty()) text += (text.empty() ? "" : ", ") + part;
  }
  return text;
}

const char* NameOf(Axis axis) { return AxisTable()[static_cast<size_t>(axis)].name; }

}  // namespace dslaunch

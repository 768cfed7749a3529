#include "cli/commands/planned_training.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/count.h"
#include "base/text/sanitize.h"
#include "cli/plan/job_program.h"
#include "cli/plan/secrets.h"
#include "proto/contract/worker_env.h"
#include "trainer/mesh/mesh.h"

namespace dslaunch {
namespace {

using Json = nlohmann::ordered_json;

// Returns a value of the recipe with all secrets masked.
Json WithoutSecrets(const Json& value, const std::string& name = "") {
  if (value.is_object()) {
    Json masked = Json::object();
    for (const auto& [key, child] : value.items()) masked[key] = WithoutSecrets(child, key);
    return masked;
  }
  if (value.is_array()) {
    Json masked = Json::array();
    for (const Json& child : value) masked.push_back(WithoutSecrets(child, name));
    return masked;
  }
  if (!value.is_string()) return value;
  return MaskedSetting(name, value.get<std::string>());
}

// Returns the recipe as the ranks receive it; null if the program has no recipe or the recipe is
// not valid JSON.
Json RecipeOf(const pb::Program& program) {
  for (const pb::EnvVar& variable : program.chosen_env()) {
    if (variable.name() != kRecipeVariable) continue;
    const Json recipe = Json::parse(variable.value(), nullptr, false);
    return recipe.is_discarded() ? Json() : WithoutSecrets(recipe);
  }
  return Json();
}

// Returns a whole number in the recipe's engine section; `otherwise` if it is missing.
int EngineNumber(const Json& recipe, const char* section, const char* key, int otherwise) {
  const Json none = Json::object();
  const auto child = [&](const Json& parent, const char* name) -> const Json& {
    return parent.is_object() && parent.contains(name) ? parent[name] : none;
  };
  const Json& value = child(child(child(recipe, "engine"), section), key);
  return value.is_number_integer() ? value.get<int>() : otherwise;
}

// The layout in which the recipe's engine divides the ranks.
struct EngineLayout {
  int stages = 1;
  int tensor = 1;  // number of ranks that divide each layer
  int zero_stage = 0;
  RankOrder order = RankOrder::kPipeData;
};

EngineLayout EngineLayoutOf(const Json& recipe) {
  EngineLayout layout;
  layout.stages = std::max(1, EngineNumber(recipe, "pipeline", "stages", 1));
  layout.tensor = std::max(1, EngineNumber(recipe, "tensor_parallel", "autotp_size", 1));
  layout.zero_stage = EngineNumber(recipe, "zero_optimization", "stage", 0);
  if (layout.stages > 1) {
    const Json& pipeline = recipe["engine"]["pipeline"];
    const char* const data_pipe = RankOrderName(RankOrder::kDataPipe);
    if (pipeline.contains("rank_order") && pipeline["rank_order"] == data_pipe) {
      layout.order = RankOrder::kDataPipe;
    }
  }
  return layout;
}

std::string RanksText(const std::vector<int>& ranks) {
  std::vector<std::string> numbers;
  for (const int rank : ranks) numbers.push_back(std::to_string(rank));
  return NameList(numbers, " ");
}

}  // namespace

std::string TrainingText(const std::string& recipe_source, const pb::Program& program,
                         int world_size) {
  std::string text = "\nTraining\n  recipe: " + SanitizeForTerminal(recipe_source) + "\n";
  const EngineLayout engine = EngineLayoutOf(RecipeOf(program));
  text += "  engine: " + Count(static_cast<size_t>(world_size), "rank") + ", ZeRO stage " +
          std::to_string(engine.zero_stage);
  if (engine.stages == 1 && engine.tensor == 1)
    return text + ", all of them replicas of the data\n";
  text += ", " + Count(static_cast<size_t>(engine.stages), "pipeline stage");
  const std::optional<Mesh> mesh = MakeMesh(world_size, engine.stages, engine.tensor, engine.order);
  if (!mesh) return text + ", into which they do not fit: the trainer will refuse it\n";
  text += " x " + Count(static_cast<size_t>(mesh->data), "replica");
  if (mesh->tensor > 1)
    text += " x " + Count(static_cast<size_t>(mesh->tensor), "part") + " of each layer";
  text += "\n";
  for (int stage = 0; stage < mesh->pipeline; ++stage) {
    for (int part = 0; part < mesh->tensor; ++part) {
      text += "    stage " + std::to_string(stage) +
              (mesh->tensor > 1 ? ", part " + std::to_string(part) : std::string()) + ": ranks " +
              RanksText(mesh->RanksAlong(MeshAxis::kData, {.stage = stage, .part = part})) + "\n";
    }
  }
  return text;
}

Json TrainingJson(const std::string& recipe_source, const pb::Program& program) {
  const Json recipe = RecipeOf(program);
  const EngineLayout engine = EngineLayoutOf(recipe);
  return {{"recipe_source", recipe_source},   {"recipe", recipe},
          {"pipeline_stages", engine.stages}, {"tensor_parallel", engine.tensor},
          {"zero_stage", engine.zero_stage},  {"rank_order", RankOrderName(engine.order)}};
}

}  // namespace dslaunch

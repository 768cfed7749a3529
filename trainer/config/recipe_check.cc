#include "trainer/config/recipe_check.h"

#include "trainer/config/config_error.h"
#include "trainer/config/json_object.h"
#include "trainer/config/recipe.h"

namespace dslaunch {
namespace {

// Refuses to compare weights that differ between ranks by design.
void CheckReplicasCheck(const JsonObject& object, const EngineConfig& engine) {
  const char* const key = "check_replicas_every";
  if (engine.zero.stage == 3) {
    object.Fail(key,
                "compares the ranks' copies of the weights, but at ZeRO stage 3 there are no "
                "copies; leave it out, or use stage 2");
  }
  if (engine.pipeline.stages > 1) {
    object.Fail(key,
                "compares the weights of all ranks, but the stages of a pipeline have different "
                "weights; leave it out");
  }
  if (engine.TrainsApart()) {
    object.Fail(key,
                "compares the ranks' weights, but with local_sgd, diloco and ZeroOneAdam ranks "
                "train apart between two exchanges; leave it out");
  }
}

// Refuses settings that need all ranks in each step, because with staleness ranks make steps alone.
void CheckStaleRun(const JsonObject& object, const RunConfig& run) {
  const std::string leave = ", but with engine.parallel.staleness ranks make their steps apart";
  if (run.normalize_by_targets) {
    object.Fail("loss_normalization", "counts the samples of all ranks in each step" + leave);
  }
  if (run.check_replicas_every) {
    object.Fail("check_replicas_every", "compares the weights of all ranks" + leave);
  }
  if (run.mode == RunConfig::Mode::kComparePrecision) {
    object.Fail("mode", "compares steps of all ranks" + leave);
  }
}

// Plans need no other ranks.
void CheckNodes(const Recipe& recipe, const std::vector<int>& ranks_of_nodes) {
  using Mode = RunConfig::Mode;
  if (recipe.run.mode == Mode::kPlanMemory || recipe.run.mode == Mode::kPlanPipeline) return;
  const std::string key = "engine.tensor_parallel.autotp_size";
  int64_t first = 0;
  for (const int count : ranks_of_nodes) {
    const std::string problem = PartsAcrossNodes(recipe.engine.tensor_parallel, first, count);
    if (!problem.empty()) throw ConfigError("", key, key + " " + problem);
    first += count;
  }
}

}  // namespace

void CheckRunFitsEngine(const JsonObject& run, const Recipe& recipe) {
  if (recipe.engine.parallel.staleness) CheckStaleRun(run, recipe.run);
  if (recipe.run.check_replicas_every) CheckReplicasCheck(run, recipe.engine);
}

// Converts the trainer's exceptions, because the launcher uses none.
std::optional<RecipeProblem> CheckRecipe(const std::string& json_text, int64_t ranks,
                                         const std::vector<int>& ranks_of_nodes) {
  try {
    const Recipe recipe = ParseRecipe(json_text, "", ranks);
    CheckNodes(recipe, ranks_of_nodes);
    return std::nullopt;
  } catch (const ConfigError& error) {
    return RecipeProblem{error.source(), error.key(), error.message()};
  } catch (const TrainError& error) {
    return RecipeProblem{"", "", error.what()};
  }
}

std::optional<TunableSettings> ReadTunableSettings(const std::string& json_text, int64_t ranks) {
  try {
    const EngineConfig engine = ParseRecipe(json_text, "", ranks).engine;
    return TunableSettings{
        .train_batch_size = engine.batch.train_batch_size,
        .micro_batch_size = engine.batch.micro_batch_size,
        .accumulation_steps = engine.batch.accumulation_steps,
        .stages = engine.pipeline.stages,
        .zero_stage = engine.zero.stage,
        .offloads_optimizer = engine.zero.offload_optimizer.device != OffloadDevice::kNone,
        .offloads_parameters = engine.zero.offload_param.device != OffloadDevice::kNone,
        .number_checkpoints = engine.number_checkpoints,
        .checkpoint_interval = engine.pipeline.activation_checkpoint_interval};
  } catch (const TrainError&) {
    return std::nullopt;
  }
}

}  // namespace dslaunch

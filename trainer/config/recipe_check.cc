#include "trainer/config/recipe_check.h"

#include <algorithm>
#include <utility>

#include "trainer/config/json/config_error.h"
#include "trainer/config/json/json_object.h"
#include "trainer/config/recipe.h"

namespace dslaunch {
namespace {

// Refuses to compare weights if they differ between ranks by design.
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

// Refuses settings that need all ranks in each step. With staleness, ranks complete steps
// independently.
void CheckStaleRun(const JsonObject& object, const RunConfig& run) {
  const std::string leave = ", but with engine.parallel.staleness ranks make their steps apart";
  if (run.normalize_by_targets) {
    object.Fail("loss_normalization", "counts the samples of all ranks in each step" + leave);
  }
  if (run.check_replicas_every) {
    object.Fail("check_replicas_every", "compares the weights of all ranks" + leave);
  }
  if (run.memory_checkpoint > 0) {
    object.Fail("memory_checkpoint", "copies the state of all ranks after the same step" + leave);
  }
  if (run.mode == RunConfig::Mode::kComparePrecision) {
    object.Fail("mode", "compares steps of all ranks" + leave);
  }
}

// Checks how ranks that divide layers are placed on nodes. Plans need no other ranks, so they are
// not checked.
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

void CheckCheckpoints(JsonObject& object, const RunConfig& run) {
  if (run.checkpoint_dir.empty()) {
    object.RefuseUnlessOff({"save_every", "resume", "keep_checkpoints", "async_save"},
                           "needs run.checkpoint_dir (--checkpoint_dir)");
    if (run.resume_from.empty()) {
      object.RefuseUnlessOff({"load_module_only"},
                             "needs run.checkpoint_dir (--checkpoint_dir) or run.resume_from");
    }
  }
  if (run.resume.empty() || run.resume.front() == '.' ||
      run.resume.find('/') != std::string::npos) {
    object.Fail("resume", "is \"" + run.resume +
                              "\"; give auto, none or the name of a checkpoint (step_000120)");
  }
  if (!run.resume_from.empty() && run.resume != "auto") {
    object.Fail("resume_from", "and run.resume (\"" + run.resume +
                                   "\") both say where the run starts; give one of them");
  }
  if (run.load_module_only && run.resume == "none") {
    object.Fail("load_module_only", "needs a checkpoint's weights, but run.resume is none");
  }
}

// Refuses a run that lacks keys that its mode requires, or that has keys of other modes.
void CheckMode(JsonObject& object, const RunConfig& run) {
  using Mode = RunConfig::Mode;
  const bool trains =
      run.mode == Mode::kTrain || run.mode == Mode::kComparePrecision || run.mode == Mode::kTrial;
  if ((run.epochs && run.steps) || (trains && !run.epochs && !run.steps)) {
    object.Fail("", "needs one of epochs and steps; it has " +
                        std::string(run.epochs ? "both" : "neither"));
  }
  if (run.mode != Mode::kPlanMemory) {
    object.RefuseUnlessOff({"ranks", "ranks_per_node"},
                           "needs run.mode plan_memory (--plan_memory)");
  }
  if (run.mode != Mode::kPlanPipeline && !run.pipeline_svg.empty()) {
    object.Fail("pipeline_svg", "needs run.mode plan_pipeline (--plan_pipeline)");
  }
  const bool reads_only = run.mode == Mode::kEvaluate || run.mode == Mode::kPredict;
  for (const auto& [key, given] :
       {std::pair("trace", !run.trace.empty()), std::pair("profile", run.profile.has_value())}) {
    if (reads_only && given) object.Fail(key, "applies to training only; remove it");
  }
}

void CheckTexts(const JsonObject& object, const RunConfig& run) {
  if (run.mode != RunConfig::Mode::kEvaluate && !run.eval_file.empty()) {
    object.Fail("eval_file", "needs run.mode evaluate (--eval_only)");
  }
  if (!run.prompt.empty() && !run.prompts.empty()) {
    object.Fail("prompts", "and run.prompt exclude each other; keep one of them");
  }
  if (run.top_p == 0) object.Fail("top_p", "is 0; it must be above 0");
  if (std::ranges::count(run.stop, "") > 0) object.Fail("stop", "has an empty text; remove it");
}

}  // namespace

void CheckRun(JsonObject& object, const RunConfig& run) {
  CheckMode(object, run);
  CheckCheckpoints(object, run);
  CheckTexts(object, run);
  if (run.peak_tflops == 0) object.Fail("peak_tflops", "is 0; it must be above 0");
  if (run.time_limit_s == 0) object.Fail("time_limit_s", "is 0; leave it out for no limit");
}

void CheckRunFitsEngine(const JsonObject& run, const Recipe& recipe) {
  if (recipe.engine.parallel.staleness) CheckStaleRun(run, recipe.run);
  if (recipe.run.check_replicas_every) CheckReplicasCheck(run, recipe.engine);
  if (recipe.run.memory_checkpoint > 0 && recipe.engine.pipeline.partition == "profile") {
    run.Fail("memory_checkpoint",
             "needs the same stages after a restart, but engine.pipeline.partition \"profile\" "
             "measures the layers at each start; give another partition");
  }
}

// Returns the problem of a recipe. The launcher uses no exceptions, so the trainer's exceptions are
// converted to values.
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
        .tensor_size = engine.tensor_parallel.size,
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

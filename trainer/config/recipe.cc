#include "trainer/config/recipe.h"

#include <algorithm>
#include <set>

#include "trainer/base/train_error.h"
#include "trainer/config/json/key_table.h"
#include "trainer/config/recipe_check.h"

namespace dslaunch {
namespace {

constexpr int64_t kMaxUnits = int64_t{1} << 20;

[[noreturn]] void FailMissing(const JsonObject& object, const char* section) {
  object.Fail(section, "is missing; a recipe has model, data, run and engine");
}

// Returns the error for a key that has no meaning together with another key's value.
std::string Elsewhere(const std::string& where) {
  return "is a setting of " + where + "; remove it";
}

// Returns the types of the families for which `is` returns true, as text for messages: "a, b or c".
std::string TypesOf(bool (ModelFamily::*is)() const) {
  std::string text;
  for (const ModelFamily* family : ModelFamilies()) {
    if ((family->*is)()) text += (text.empty() ? "" : " or ") + std::string(family->type());
  }
  return text;
}

ModelConfig ParseModel(JsonObject object) {
  std::set<std::string> types;
  std::string known;  // names as text for messages: "a, b and c"
  for (const ModelFamily* family : ModelFamilies()) {
    types.insert(family->type());
    const bool last = family == ModelFamilies().back();
    known += (known.empty() ? "" : last ? " and " : ", ") + std::string(family->type());
  }
  if (object.Has("from")) {
    object.Fail("from",
                "is a folder, which only `dslaunch train` reads; put here the keys of the model");
  }
  (void)object.String("from");
  ExplainLastKey(
      "a folder of Hugging Face, in place of all other keys: its config.json gives the model, and "
      "its weights are `run.init_weights` unless the recipe has that key");
  const std::optional<std::string> type = object.Word("type", types);
  ExplainLastKey("required without `from`; `plugin`: your own model in a shared library");
  if (!type) object.Fail("type", "is missing; known: " + known);
  const ModelFamily& family = **std::ranges::find(
      ModelFamilies(), *type, [](const ModelFamily* one) { return one->type(); });
  ModelConfig model = family.Read(object);
  object.RefuseUnknown();
  return model;
}

KeyTable<RunConfig> RunKeys() {
  using R = RunConfig;
  constexpr int64_t kMostRanks = 1'000'000;
  return {
      WordKey("mode", &R::mode,
              {"train", "evaluate", "predict", "plan_memory", "plan_pipeline", "compare_precision",
               "trial"},
              "default train; `--eval_only`, `--plan_memory`, `--plan_pipeline`, "
              "`--compare_precision`, `predict` and `tune` set it"),
      WordKey("device", &R::device, {"auto", "cuda", "cpu"}, "default auto; `--device` sets it"),
      IntKey("epochs", &R::epochs, {1, 1'000'000},
             "passes over the data; one of `epochs` and `steps` is needed to train"),
      IntKey("steps", &R::steps, {1}, "optimizer steps"),
      IntKey("seed", &R::seed, {0}, "seed of initial weights and data order"),
      IntKey("eval_every", &R::eval_every, {1},
             "optimizer steps between evaluations; there is always one at the end"),
      TextKey("metrics_jsonl", &R::metrics_jsonl,
              "rank 0 appends one JSON object for each step and each evaluation to this file"),
      NumberKey("peak_tflops", &R::peak_tflops, {0},
                "peak TFLOPS of one rank's hardware, for `mfu`; above 0; default: from a table of "
                "GPU names"),
      TextKey("init_weights", &R::init_weights,
              "a safetensors file, or a folder with model.safetensors"),
      TextKey("trace", &R::trace, "a folder for a Chrome trace of each rank"),
      IntKey("ranks", &R::ranks, {1, kMostRanks},
             "with `mode: plan_memory`: plan for so many ranks; default: those of the job"),
      IntKey("ranks_per_node", &R::ranks_per_node, {1, kMostRanks},
             "with `mode: plan_memory`: ranks on each node; default: as the job"),
      TextKey("pipeline_svg", &R::pipeline_svg,
              "with `mode: plan_pipeline`: an SVG file to draw the schedule into as well"),
      NumberKey("time_limit_s", &R::time_limit_s, {0},
                "after this many seconds: finish the step, save a checkpoint and exit with code "
                "85; above 0"),
      NumberKey("collective_timeout_s", &R::collective_timeout_s, {1, 7 * 24 * 3600},
                "seconds after which a collective, or another wait for a rank's message, fails"),
      BoolKey("deterministic", &R::deterministic,
              "use only algorithms whose results repeat bit by bit"),
      BoolKey("tf32", &R::tf32,
              "on GPUs, matrix products and convolutions of fp32 numbers round their factors to "
              "11 significant bits, which is several times as fast"),
      IntKey("check_replicas_every", &R::check_replicas_every, {1},
             "optimizer steps between comparisons of the ranks' weights; default: none"),
      TextKey("predictions", &R::predictions,
              "predict: the file to write, JSON lines or the text after `prompt`; default: "
              "stdout")};
}

KeyTable<RunConfig> RunCheckpointKeys() {
  using R = RunConfig;
  return {
      TextKey("checkpoint_dir", &R::checkpoint_dir,
              "a folder that all nodes share; without it there are no checkpoints"),
      IntKey("save_every", &R::save_every, {1},
             "optimizer steps between checkpoints; there is always one at the end"),
      TextKey("resume", &R::resume,
              "`auto`, `none` or the name of a checkpoint such as step_000120"),
      IntKey("keep_checkpoints", &R::keep_checkpoints, {1},
             "number of checkpoints to keep of one run; older ones are removed"),
      BoolKey("async_save", &R::async_save,
              "write in the background: a step waits for the copy in memory only, not for the "
              "disk"),
      BoolKey("load_module_only", &R::load_module_only,
              "start at step 1 with a checkpoint's weights"),
      IntKey("memory_checkpoint", &R::memory_checkpoint, {0, 1'000'000},
             "optimizer steps between copies of each rank's state in the memory of its own node, "
             "from which a restarted job continues; 0: none"),
      TextKey("resume_from", &R::resume_from,
              "start from this checkpoint: one of DeepSpeed or PyTorch, or of another run; a run "
              "that has saved a checkpoint of its own continues from that one")};
}

KeyTable<RunConfig> TextKeys() {
  using R = RunConfig;
  return {
      TextKey("tokenizer", &R::tokenizer,
              "evaluate, predict: a folder with tokenizer.json; default: that of `init_weights`; "
              "tokens of data of type text are bytes"),
      TextKey("eval_file", &R::eval_file,
              "evaluate: JSON lines of documents, `{\"text\"}`, or of questions, `{\"query\", "
              "\"choices\", \"gold\"}`, in place of the data"),
      TextKey("prompt", &R::prompt, "predict: text to continue"),
      TextKey("prompts", &R::prompts,
              "predict: a file of texts to continue, JSON lines `{\"prompt\"}`"),
      IntKey("max_new_tokens", &R::max_new_tokens, {1, kMaxUnits},
             "predict: number of tokens to generate"),
      NumberKey("temperature", &R::temperature, {0}, "predict: 0: always the most likely token"),
      IntKey("top_k", &R::top_k, {0}, "predict: sample from this many most likely tokens; 0: all"),
      NumberKey("top_p", &R::top_p, {0, 1},
                "predict: sample from the fewest most likely tokens that have this probability "
                "together; above 0"),
      TextsKey("stop", &R::stop, "predict: texts before which the generated text ends")};
}

KeyTable<RunConfig> ExportKeys() {
  return {TextKey("export_hf", &RunConfig::export_hf,
                  "a folder to write config.json and model.safetensors into, as transformers reads "
                  "them")};
}

// Reads keys that only some families support: keys for continuing a text, and keys for models that
// transformers supports.
void ReadKeysOfFamily(JsonObject& object, const ModelFamily& family, RunConfig& run) {
  ReadKeysIf(
      family.TakesTokens(), object, TextKeys(), run,
      Elsewhere("the model " + TypesOf(&ModelFamily::TakesTokens) + ", which can generate text"));
  ReadKeysIf(family.InTransformers(), object, ExportKeys(), run,
             Elsewhere("the model " + TypesOf(&ModelFamily::InTransformers) +
                       ", which Hugging Face supports; a checkpoint (--checkpoint_dir) holds the "
                       "weights of any model as safetensors"));
}

void ParseLossNormalization(JsonObject& object, const DataConfig& data, RunConfig& run) {
  const std::string word = object.Word("loss_normalization", {"micro_batch", "tokens", "samples"})
                               .value_or("micro_batch");
  ExplainLastKey(
      "`tokens`, or `samples` of data without tokens: each of the global batch counts the same; "
      "`micro_batch`: the mean of each micro-batch does, so samples of a smaller one, as at the "
      "end of an epoch, count more; default micro_batch");
  run.normalize_by_targets = word != "micro_batch";
  if (word == "tokens" && !HoldsTokens(data.type)) {
    object.Fail("loss_normalization", "is \"tokens\", but this data has no tokens; use samples");
  }
  if (word == "samples" && HoldsTokens(data.type)) {
    object.Fail("loss_normalization",
                "is \"samples\", but the samples of this data are tokens; use tokens");
  }
}

const KeyTable<ProfileConfig>& ProfileKeys() {
  using P = ProfileConfig;
  constexpr int64_t kMostSteps = 1'000'000;
  static const KeyTable<P> kKeys = {
      BoolKey("enabled", &P::enabled, ""),
      IntKey("wait", &P::wait, {0, kMostSteps},
             "optimizer steps at the start that are not profiled"),
      IntKey("warmup", &P::warmup, {0, kMostSteps},
             "following optimizer steps that warm the profiler up and are not recorded"),
      IntKey("active", &P::active, {1, kMostSteps}, "following optimizer steps that are recorded"),
      WordKey("sort_by", &P::sort_by, {std::begin(kProfileSorts), std::end(kProfileSorts)}, ""),
      IntKey("rows", &P::rows, {1, kMostSteps}, "rows of the printed table")};
  return kKeys;
}

std::optional<ProfileConfig> ParseProfile(JsonObject object) {
  const ProfileConfig profile = ReadKeys(object, ProfileKeys());
  object.RefuseUnknown();
  if (!profile.enabled) return std::nullopt;
  return profile;
}

// Names that the results of evaluations already use, so that a metric cannot have them.
const std::set<std::string> kResultNames = {"loss",       "accuracy", "correct", "samples",
                                            "perplexity", "tokens",   "step",    "epoch",
                                            "attempt",    "event"};

std::vector<MetricConfig> ParseMetrics(JsonObject& object, const ModelConfig& model,
                                       const DataConfig& data) {
  const std::string of_data = data.plugin.empty() ? model.family().Library(model) : data.plugin;
  const std::string library = object.String("metrics_plugin").value_or(of_data);
  ExplainLastKey(
      "their shared library; default: that of the data, or of the model, if it is a plugin's");
  const nlohmann::json params = ParseJson(object.ObjectText("metrics_params"), "metrics_params");
  ExplainLastKey("parameters for the metrics, an object for each name; default {}");
  const std::vector<std::string> given = object.Strings("metrics", JsonLists::kMayBeEmpty);
  ExplainLastKey(
      "names of a plugin's metrics (`DSLAUNCH_METRIC`), which each evaluation computes as well; "
      "`dslaunch train --list --plugin LIB.so` lists them");
  std::vector<MetricConfig> metrics;
  std::set<std::string> names;
  for (const std::string& name : given) {
    const auto refuse = [&](const std::string& why) {
      object.Fail("metrics", "has \"" + name + "\"" + why);
    };
    if (!IsPluginName(name)) refuse("; names have letters, digits and _");
    if (kResultNames.contains(name)) refuse(", which every evaluation has; choose another name");
    if (!names.insert(name).second) refuse(" twice");
    metrics.push_back({name, library, params.contains(name) ? params[name].dump() : "{}"});
  }
  if (!metrics.empty() && library.empty()) {
    object.Fail("metrics_plugin",
                "is missing; give the path of the shared library with the metrics");
  }
  for (const auto& [name, of_metric] : params.items()) {
    const std::string key = "metrics_params." + name;
    if (!names.contains(name)) {
      const std::optional<std::string> near = DidYouMean(name, names);
      object.Fail(key, "is not one of run.metrics" +
                           (near ? ", did you mean \"" + *near + "\"?" : std::string()));
    }
    if (!of_metric.is_object()) object.Fail(key, "must be an object");
  }
  return metrics;
}

RunConfig ParseRun(JsonObject object, const ModelConfig& model, const DataConfig& data) {
  RunConfig run = ReadKeys(object, RunKeys());
  ReadKeys(object, RunCheckpointKeys(), run);
  run.metrics = ParseMetrics(object, model, data);
  if (const auto profile = object.Object(
          "profile",
          "The profiler of a few steps. The section turns it on, as `--profile` does.")) {
    run.profile = ParseProfile(*profile);
  }
  ParseLossNormalization(object, data, run);
  ReadKeysOfFamily(object, model.family(), run);
  object.RefuseUnknown();
  CheckRun(object, run);
  return run;
}

// Returns the optimizer for a recipe without an optimizer. DeepSpeed leaves this case to the
// program.
OptimizerConfig DefaultOptimizer() {
  OptimizerConfig optimizer;
  optimizer.name = "AdamW";
  return optimizer;
}

// Reads the section "engine", or the content of the file by which the launcher has replaced it;
// engine_source then has the file's name.
EngineConfig ParseEngine(const nlohmann::json& recipe, JsonObject& object, const ModelConfig& model,
                         int64_t ranks) {
  const std::optional<std::string> file = object.String("engine_source");
  ExplainLastKey("name of the file that `engine` was read from, for messages; set by dslaunch");
  if (object.TypeOf("engine") == JsonType::string) {
    object.Fail("engine",
                "is the path of a file, which only `dslaunch train` reads; put here the "
                "configuration itself");
  }
  const std::optional<JsonObject> section = object.Object(
      "engine",
      "DeepSpeed's configuration, or the path of such a file. The file that `--deepspeed_config` "
      "names has the same keys at its top level.");
  if (!section) FailMissing(object, "engine");
  const JsonObject engine = file ? JsonObject(recipe["engine"], *file, "") : *section;
  EngineConfig config = ParseEngineConfig(engine, ranks, DefaultOptimizer());
  if (const int64_t parts = config.tensor_parallel.size; parts > 1) {
    const std::string refusal = model.family().TensorParallelRefusal(model, parts);
    if (!refusal.empty()) {
      engine.Fail("tensor_parallel.autotp_size", "does not fit the model: " + refusal);
    }
  }
  return config;
}

// Returns the engine's configuration in each precision, regardless of its own precision.
std::vector<EngineConfig> EnginesByPrecision(const nlohmann::json& recipe,
                                             const std::string& source, const ModelConfig& model,
                                             int64_t ranks) {
  std::vector<EngineConfig> engines;
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    nlohmann::json changed = recipe;
    nlohmann::json& engine = changed["engine"];
    nlohmann::json fp16 = engine.value("fp16", nlohmann::json::object());
    for (const char* key : {"fp16", "bf16", "bfloat16", "amp", "torch_autocast", "data_types",
                            "communication_data_type"}) {
      engine.erase(key);
    }
    fp16["enabled"] = true;
    if (precision == std::string("bf16")) engine["bf16"] = {{"enabled", true}};
    if (precision == std::string("fp16")) engine["fp16"] = fp16;
    JsonObject object(changed, source, "");
    engines.push_back(ParseEngine(changed, object, model, ranks));
  }
  return engines;
}

std::optional<LoraConfig> ParseLora(JsonObject& recipe, const ModelFamily& family) {
  const std::optional<JsonObject> section = recipe.Object(
      "lora", "Low-rank adapters, which are trained instead of the model's own weights.");
  if (!section) return std::nullopt;
  if (!family.HasAdapters()) {
    recipe.Fail("lora", Elsewhere("the model " + TypesOf(&ModelFamily::HasAdapters)));
  }
  return ReadLora(*section);
}

}  // namespace

ModelConfig ParseModelSection(const std::string& json_text, const std::string& source) {
  const nlohmann::json json = ParseJson(json_text, source);
  return ParseModel(JsonObject(json, source, "model"));
}

Recipe ParseRecipe(const std::string& json_text, const std::string& source, int64_t ranks) {
  const nlohmann::json json = ParseJson(json_text, source);
  JsonObject object(json, source, "");
  const auto section = [&](const char* name, const char* meaning = "") {
    std::optional<JsonObject> found = object.Object(name, meaning);
    if (!found) FailMissing(object, name);
    return *found;
  };
  Recipe recipe;
  recipe.model = ParseModel(section("model", "The model."));
  recipe.model_text = json["model"].dump();
  JsonObject data = section("data", "The data set.");
  recipe.data = ReadDataConfig(data, recipe.model);
  recipe.run =
      ParseRun(section("run", "Length of the run, and what it writes."), recipe.model, recipe.data);
  if (recipe.data.path.empty() && recipe.data.sources.empty() &&
      recipe.data.type != DataConfig::Type::kPlugin && !recipe.run.has_own_texts()) {
    section("data").Fail("path", "is missing; give the path of the data (--data)");
  }
  if (recipe.run.ranks) ranks = *recipe.run.ranks;
  const bool needs_batches =
      recipe.run.mode != RunConfig::Mode::kEvaluate && recipe.run.mode != RunConfig::Mode::kPredict;
  recipe.engine = ParseEngine(json, object, recipe.model, needs_batches ? ranks : 0);
  if (recipe.data.documents) {
    if (recipe.engine.pipeline.stages > 1) {
      data.Fail("documents",
                "needs all layers on one rank, but engine.pipeline divides them; leave one of them "
                "out");
    }
    recipe.model = *recipe.model.family().SeparateDocuments(recipe.model);
  }
  if (recipe.run.steps) FitToRun(recipe.engine.scheduler, *recipe.run.steps);
  CheckRunFitsEngine(section("run"), recipe);
  if (recipe.run.mode == RunConfig::Mode::kComparePrecision) {
    recipe.engines = EnginesByPrecision(json, source, recipe.model, ranks);
  }
  if (recipe.engine.cuda_graph && recipe.run.normalize_by_targets) {
    section("run").Fail("loss_normalization",
                        "counts each batch's targets, which engine.cuda_graph cannot record; leave "
                        "one of them out");
  }
  recipe.lora = ParseLora(object, recipe.model.family());
  object.RefuseUnknown();
  nlohmann::json identity = {json["model"], json["data"], json["engine"], recipe.run.seed};
  if (recipe.lora) identity.push_back(json["lora"]);
  recipe.identity = identity.dump();
  return recipe;
}

}  // namespace dslaunch

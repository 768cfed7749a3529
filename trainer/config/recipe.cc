#include "trainer/config/recipe.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "trainer/base/train_error.h"
#include "trainer/config/json_object.h"

namespace dslaunch {
namespace {

constexpr char kDefaultDataPath[] = "/usr/share/datasets/fashion-mnist";
constexpr int64_t kMaxUnits = int64_t{1} << 20;
constexpr int64_t kMaxImageSize = 4096;
constexpr int64_t kMaxClasses = int64_t{1} << 20;

[[noreturn]] void FailMissing(const JsonObject& object, const char* section) {
  object.Fail(section, "is missing; a recipe has model, data, run and engine");
}

// Refuses keys that mean nothing beside the value of another key.
void RefuseElsewhere(JsonObject& object, const std::set<std::string>& keys,
                     const std::string& where) {
  object.RefuseUnlessOff(keys, "is a setting of " + where + "; remove it");
}

// The types of the families that `is` is true of, for messages: "a, b or c".
std::string TypesOf(bool (ModelFamily::*is)() const) {
  std::string text;
  for (const ModelFamily* family : ModelFamilies()) {
    if ((family->*is)()) text += (text.empty() ? "" : " or ") + std::string(family->type());
  }
  return text;
}

ModelConfig ParseModel(JsonObject object) {
  std::set<std::string> types;
  std::string known;  // "a, b and c"
  for (const ModelFamily* family : ModelFamilies()) {
    types.insert(family->type());
    const bool last = family == ModelFamilies().back();
    known += (known.empty() ? "" : last ? " and " : ", ") + std::string(family->type());
  }
  const std::optional<std::string> type = object.Word("type", types);
  object.Explain([] { return "required; `plugin`: your own model in a shared library"; });
  if (!type) object.Fail("type", "is missing; known: " + known);
  const ModelFamily& family = **std::ranges::find(
      ModelFamilies(), *type, [](const ModelFamily* one) { return one->type(); });
  ModelConfig model = family.Read(object);
  object.RefuseUnknown();
  return model;
}

bool HoldsTokens(DataConfig::Type type) {
  return type == DataConfig::Type::kTokens || type == DataConfig::Type::kText;
}

DataConfig::Type ParseDataType(JsonObject& object) {
  using Type = DataConfig::Type;
  static const std::map<std::string, Type> kTypes = {
      {"idx", Type::kIdx},      {"cifar", Type::kCifar},   {"image_folder", Type::kImageFolder},
      {"csv", Type::kCsv},      {"tokens", Type::kTokens}, {"text", Type::kText},
      {"plugin", Type::kPlugin}};
  const std::optional<std::string> type =
      object.Word("type", {"idx", "cifar", "image_folder", "csv", "tokens", "text", "plugin"});
  if (!type)
    object.Fail("type",
                "is missing; known: idx, cifar, image_folder, csv, tokens, text and plugin");
  return kTypes.at(*type);
}

// Data to evaluate on that the type does not bring along.
void ParseValidation(JsonObject& object, DataConfig& data) {
  if (data.type == DataConfig::Type::kIdx || data.type == DataConfig::Type::kCifar) {
    RefuseElsewhere(
        object, {"val_path", "val_fraction"},
        "image_folder, csv, tokens and text; idx and cifar have test files of their own");
    return;
  }
  if (data.type == DataConfig::Type::kPlugin) {
    RefuseElsewhere(
        object, {"val_path", "val_fraction"},
        "image_folder, csv, tokens and text; a plugin makes the data to evaluate on itself");
    return;
  }
  data.val_path = object.String("val_path").value_or("");
  data.val_fraction = object.Number("val_fraction", 0, 1).value_or(0);
  if (data.val_fraction == 1) object.Fail("val_fraction", "is 1, which leaves no training data");
  if (!data.val_path.empty() && data.val_fraction > 0) {
    object.Fail("val_fraction", "and val_path exclude each other; keep one of them");
  }
}

// Tokens of a sample: at most what the model has positions for, which is also the default.
void ParseBlockSize(JsonObject& object, const ModelConfig& model, DataConfig& data) {
  if (!HoldsTokens(data.type)) return RefuseElsewhere(object, {"block_size"}, "tokens and text");
  data.block_size = object.Int("block_size", 1, kMaxUnits).value_or(0);
  const int64_t positions = model.needs().positions;
  if (positions > 0 && data.block_size > positions) {
    object.Fail("block_size", "is " + std::to_string(data.block_size) +
                                  ", but the model has n_positions " + std::to_string(positions) +
                                  "; change one of them");
  }
  if (positions == 0 && data.block_size == 0) {
    object.Fail("block_size",
                "is missing; this model does not give the number of tokens in a sample");
  }
}

void CheckModelTakes(JsonObject& object, const ModelConfig& model, const DataConfig& data) {
  const DataNeeds needs = model.needs();
  const bool takes_any = needs.classes == 0 && needs.vocabulary == 0;
  if (takes_any || data.type == DataConfig::Type::kPlugin) return;
  if ((needs.vocabulary > 0) == HoldsTokens(data.type)) return;
  object.Fail("type",
              std::string("does not fit the model: ") + model.type() + " takes " +
                  (needs.vocabulary > 0 ? "tokens or text" : "idx, cifar, image_folder or csv"));
}

// A plugin exports its data sets and metrics under their names.
bool IsPluginName(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

void ParsePluginData(JsonObject& object, const ModelConfig& model, DataConfig& data) {
  if (data.type != DataConfig::Type::kPlugin)
    return RefuseElsewhere(object, {"plugin", "name", "params"}, "the type plugin");
  data.plugin = object.String("plugin").value_or(model.family().Library(model));
  if (data.plugin.empty())
    object.Fail("plugin", "is missing; give the path of the plugin's shared library");
  data.name = object.String("name").value_or("");
  if (!IsPluginName(data.name)) {
    object.Fail("name", data.name.empty()
                            ? "is missing; give the name of a DSLAUNCH_DATASET of the plugin"
                            : "is \"" + data.name + "\"; names have letters, digits and _");
  }
  data.params = object.ObjectText("params");
}

DataConfig ParseData(JsonObject object, const ModelConfig& model) {
  DataConfig data;
  data.type = ParseDataType(object);
  CheckModelTakes(object, model, data);
  data.path =
      object.String("path").value_or(data.type == DataConfig::Type::kIdx ? kDefaultDataPath : "");
  data.shuffle = object.Bool("shuffle").value_or(data.shuffle);
  data.drop_last = object.Bool("drop_last").value_or(data.drop_last);
  data.prefetch = object.Int("prefetch", 0, 1 << 16).value_or(data.prefetch);
  ParseBlockSize(object, model, data);
  ParseValidation(object, data);
  ParsePluginData(object, model, data);
  if (data.type == DataConfig::Type::kImageFolder) {
    data.image_size = object.Int("image_size", 1, kMaxImageSize).value_or(data.image_size);
  } else {
    RefuseElsewhere(object, {"image_size"}, "image_folder");
  }
  if (data.type == DataConfig::Type::kCsv) {
    data.label_column = object.StringOrInt("label_column").value_or("");
    data.columns = object.Strings("columns");
    data.label_names = object.Strings("label_names");
    const std::set<std::string> distinct(data.label_names.begin(), data.label_names.end());
    if (distinct.size() < data.label_names.size())
      object.Fail("label_names", "has a name twice; give each class one name");
  } else {
    RefuseElsewhere(object, {"label_column", "columns", "label_names"}, "csv");
  }
  object.RefuseUnknown();
  return data;
}

RunConfig::Mode ParseMode(JsonObject& object) {
  using Mode = RunConfig::Mode;
  static const std::map<std::string, Mode> kModes = {
      {"train", Mode::kTrain},
      {"evaluate", Mode::kEvaluate},
      {"predict", Mode::kPredict},
      {"plan_memory", Mode::kPlanMemory},
      {"plan_pipeline", Mode::kPlanPipeline},
      {"compare_precision", Mode::kComparePrecision}};
  return kModes.at(object
                       .Word("mode", {"train", "evaluate", "predict", "plan_memory",
                                      "plan_pipeline", "compare_precision"})
                       .value_or("train"));
}

DeviceKind ParseDevice(JsonObject& object) {
  static const std::map<std::string, DeviceKind> kDevices = {
      {"auto", DeviceKind::kAuto}, {"cuda", DeviceKind::kCuda}, {"cpu", DeviceKind::kCpu}};
  return kDevices.at(object.Word("device", {"auto", "cuda", "cpu"}).value_or("auto"));
}

void ParseLength(JsonObject& object, RunConfig& run) {
  run.epochs = object.Int("epochs", 1, 1'000'000);
  run.steps = object.Int("steps", 1);
  const bool trains =
      run.mode == RunConfig::Mode::kTrain || run.mode == RunConfig::Mode::kComparePrecision;
  if ((run.epochs && run.steps) || (trains && !run.epochs && !run.steps)) {
    object.Fail("", "needs one of epochs and steps; it has " +
                        std::string(run.epochs ? "both" : "neither"));
  }
}

void ParseCheckpoints(JsonObject& object, RunConfig& run) {
  run.checkpoint_dir = object.String("checkpoint_dir").value_or("");
  run.save_every = object.Int("save_every", 1);
  const std::optional<std::string> resume = object.String("resume");
  const std::optional<int64_t> keep = object.Int("keep_checkpoints", 1);
  run.async_save = object.Bool("async_save").value_or(false);
  run.load_module_only = object.Bool("load_module_only").value_or(false);
  for (const auto& [key, given] :
       {std::pair("save_every", run.save_every.has_value()),
        std::pair("resume", resume.has_value()), std::pair("keep_checkpoints", keep.has_value()),
        std::pair("async_save", run.async_save),
        std::pair("load_module_only", run.load_module_only)}) {
    if (given && run.checkpoint_dir.empty()) {
      object.Fail(key, "needs run.checkpoint_dir (--checkpoint_dir)");
    }
  }
  run.resume = resume.value_or(run.resume);
  if (run.resume.empty() || run.resume.front() == '.' ||
      run.resume.find('/') != std::string::npos) {
    object.Fail("resume", "is \"" + run.resume +
                              "\"; give auto, none or the name of a checkpoint (step_000120)");
  }
  if (run.load_module_only && run.resume == "none") {
    object.Fail("load_module_only", "needs a checkpoint's weights, but run.resume is none");
  }
  run.keep_checkpoints = keep.value_or(run.keep_checkpoints);
}

// What `predict` writes, how a text is continued, and export_hf.
void ParsePrediction(JsonObject& object, const ModelConfig& model, RunConfig& run) {
  run.predictions = object.String("predictions").value_or("");
  if (model.family().TakesTokens()) {
    run.prompt = object.String("prompt").value_or("");
    run.max_new_tokens = object.Int("max_new_tokens", 1, kMaxUnits).value_or(run.max_new_tokens);
    run.temperature = object.Number("temperature", 0).value_or(run.temperature);
    run.top_k = object.Int("top_k", 0).value_or(run.top_k);
  } else {
    RefuseElsewhere(
        object, {"prompt", "max_new_tokens", "temperature", "top_k"},
        "the model " + TypesOf(&ModelFamily::TakesTokens) + ", which can generate text");
  }
  if (model.family().InTransformers()) {
    run.export_hf = object.String("export_hf").value_or("");
  } else {
    RefuseElsewhere(object, {"export_hf"},
                    "the model " + TypesOf(&ModelFamily::InTransformers) +
                        ", which Hugging Face supports; a checkpoint (--checkpoint_dir) holds the "
                        "weights of any model as safetensors");
  }
}

void ParseLossNormalization(JsonObject& object, const DataConfig& data, RunConfig& run) {
  const std::string word = object.Word("loss_normalization", {"micro_batch", "tokens", "samples"})
                               .value_or("micro_batch");
  run.normalize_by_targets = word != "micro_batch";
  if (word == "tokens" && !HoldsTokens(data.type)) {
    object.Fail("loss_normalization", "is \"tokens\", but this data has no tokens; use samples");
  }
  if (word == "samples" && HoldsTokens(data.type)) {
    object.Fail("loss_normalization",
                "is \"samples\", but the samples of this data are tokens; use tokens");
  }
}

ProfileSort ParseProfileSort(JsonObject& object) {
  constexpr std::array kSorts = {ProfileSort::kSelfTime, ProfileSort::kTotalTime,
                                 ProfileSort::kDeviceTime, ProfileSort::kMemory,
                                 ProfileSort::kCalls};
  std::set<std::string> words;
  for (const ProfileSort sort : kSorts) words.insert(ProfileSortName(sort));
  const std::optional<std::string> word = object.Word("sort_by", words);
  for (const ProfileSort sort : kSorts) {
    if (word == ProfileSortName(sort)) return sort;
  }
  return ProfileSort::kSelfTime;
}

std::optional<ProfileConfig> ParseProfile(JsonObject object) {
  constexpr int64_t kMostSteps = 1'000'000;
  ProfileConfig profile;
  const bool enabled = object.Bool("enabled").value_or(true);
  profile.wait = object.Int("wait", 0, kMostSteps).value_or(profile.wait);
  profile.warmup = object.Int("warmup", 0, kMostSteps).value_or(profile.warmup);
  profile.active = object.Int("active", 1, kMostSteps).value_or(profile.active);
  profile.sort_by = ParseProfileSort(object);
  profile.rows = object.Int("rows", 1, kMostSteps).value_or(profile.rows);
  object.RefuseUnknown();
  if (!enabled) return std::nullopt;
  return profile;
}

// Results of every evaluation have some of these names.
const std::set<std::string> kResultNames = {"loss",       "accuracy", "correct", "samples",
                                            "perplexity", "tokens",   "step",    "epoch",
                                            "attempt",    "event"};

std::vector<MetricConfig> ParseMetrics(JsonObject& object, const ModelConfig& model,
                                       const DataConfig& data) {
  const std::string of_data = data.plugin.empty() ? model.family().Library(model) : data.plugin;
  const std::string library = object.String("metrics_plugin").value_or(of_data);
  const nlohmann::json params = ParseJson(object.ObjectText("metrics_params"), "metrics_params");
  std::vector<MetricConfig> metrics;
  std::set<std::string> names;
  for (const std::string& name : object.Strings("metrics", JsonLists::kMayBeEmpty)) {
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
  RunConfig run;
  run.mode = ParseMode(object);
  run.device = ParseDevice(object);
  ParseLength(object, run);
  run.seed = static_cast<uint64_t>(object.Int("seed", 0).value_or(0));
  run.eval_every = object.Int("eval_every", 1);
  run.metrics = ParseMetrics(object, model, data);
  run.metrics_jsonl = object.String("metrics_jsonl").value_or("");
  run.peak_tflops = object.Number("peak_tflops", 0);
  if (run.peak_tflops == 0) object.Fail("peak_tflops", "is 0; it must be above 0");
  ParseCheckpoints(object, run);
  run.init_weights = object.String("init_weights").value_or("");
  run.trace = object.String("trace").value_or("");
  if (const auto profile = object.Object("profile")) run.profile = ParseProfile(*profile);
  constexpr int64_t kMostRanks = 1'000'000;
  run.ranks = object.Int("ranks", 1, kMostRanks);
  run.ranks_per_node = object.Int("ranks_per_node", 1, kMostRanks);
  for (const auto& [key, given] : {std::pair("ranks", run.ranks.has_value()),
                                   std::pair("ranks_per_node", run.ranks_per_node.has_value())}) {
    if (given && run.mode != RunConfig::Mode::kPlanMemory) {
      object.Fail(key, "needs run.mode plan_memory (--plan_memory)");
    }
  }
  run.pipeline_svg = object.String("pipeline_svg").value_or("");
  if (run.mode != RunConfig::Mode::kPlanPipeline && !run.pipeline_svg.empty()) {
    object.Fail("pipeline_svg", "needs run.mode plan_pipeline (--plan_pipeline)");
  }
  const bool works_only =
      run.mode == RunConfig::Mode::kEvaluate || run.mode == RunConfig::Mode::kPredict;
  for (const auto& [key, given] :
       {std::pair("trace", !run.trace.empty()), std::pair("profile", run.profile.has_value())}) {
    if (works_only && given) object.Fail(key, "applies to training only; remove it");
  }
  run.time_limit_s = object.Number("time_limit_s", 0);
  if (run.time_limit_s == 0) object.Fail("time_limit_s", "is 0; leave it out for no limit");
  constexpr double kLongestWaitS = 7 * 24 * 3600;
  run.collective_timeout_s =
      object.Number("collective_timeout_s", 1, kLongestWaitS).value_or(run.collective_timeout_s);
  run.deterministic = object.Bool("deterministic").value_or(false);
  run.tf32 = object.Bool("tf32").value_or(false);
  run.check_replicas_every = object.Int("check_replicas_every", 1);
  ParseLossNormalization(object, data, run);
  ParsePrediction(object, model, run);
  object.RefuseUnknown();
  return run;
}

// What trains a recipe whose engine names no optimizer: DeepSpeed leaves that to the program.
OptimizerConfig DefaultOptimizer() {
  OptimizerConfig optimizer;
  optimizer.name = "AdamW";
  return optimizer;
}

// The section itself, or a file's contents that the launcher has put in its place, whose name is
// then in engine_source.
EngineConfig ParseEngine(const nlohmann::json& recipe, JsonObject& object, int64_t ranks) {
  const std::optional<std::string> file = object.String("engine_source");
  if (object.HasString("engine")) {
    object.Fail("engine",
                "is the path of a file, which only `dslaunch train` reads; put here the "
                "configuration itself");
  }
  const std::optional<JsonObject> section = object.Object("engine");
  if (!section) FailMissing(object, "engine");
  if (!file) return ParseEngineConfig(*section, ranks, DefaultOptimizer());
  return ParseEngineConfig(JsonObject(recipe["engine"], *file, ""), ranks, DefaultOptimizer());
}

// The same configuration in each precision, whichever it asks for itself.
std::vector<EngineConfig> EnginesByPrecision(const nlohmann::json& recipe,
                                             const std::string& source, int64_t ranks) {
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
    engines.push_back(ParseEngine(changed, object, ranks));
  }
  return engines;
}

// Weights that differ between ranks by design cannot be compared.
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

// What asks for something of all ranks in each step, of which each makes its own.
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

}  // namespace

nlohmann::json ModelFamily::LeastSection() const { return nlohmann::json::object(); }

std::string DataName(const DataConfig& data) {
  if (data.type != DataConfig::Type::kPlugin) return data.path;
  return data.name + " of " + data.plugin + (data.path.empty() ? "" : " (" + data.path + ")");
}

ModelConfig ParseModelSection(const std::string& json_text, const std::string& source) {
  const nlohmann::json json = ParseJson(json_text, source);
  return ParseModel(JsonObject(json, source, "model"));
}

Recipe ParseRecipe(const std::string& json_text, const std::string& source, int64_t ranks) {
  const nlohmann::json json = ParseJson(json_text, source);
  JsonObject object(json, source, "");
  const auto section = [&](const char* name) {
    std::optional<JsonObject> found = object.Object(name);
    if (!found) FailMissing(object, name);
    return *found;
  };
  Recipe recipe;
  recipe.model = ParseModel(section("model"));
  recipe.model_text = json["model"].dump();
  recipe.data = ParseData(section("data"), recipe.model);
  recipe.run = ParseRun(section("run"), recipe.model, recipe.data);
  const bool writes_text =
      recipe.run.mode == RunConfig::Mode::kPredict && !recipe.run.prompt.empty();
  if (recipe.data.path.empty() && recipe.data.type != DataConfig::Type::kPlugin && !writes_text) {
    section("data").Fail("path", "is missing; give the path of the data (--data)");
  }
  if (recipe.run.ranks) ranks = *recipe.run.ranks;
  const bool needs_batches =
      recipe.run.mode != RunConfig::Mode::kEvaluate && recipe.run.mode != RunConfig::Mode::kPredict;
  recipe.engine = ParseEngine(json, object, needs_batches ? ranks : 0);
  if (recipe.run.steps) FitToRun(recipe.engine.scheduler, *recipe.run.steps);
  if (recipe.engine.parallel.staleness) CheckStaleRun(section("run"), recipe.run);
  if (recipe.run.check_replicas_every) CheckReplicasCheck(section("run"), recipe.engine);
  if (recipe.run.mode == RunConfig::Mode::kComparePrecision) {
    recipe.engines = EnginesByPrecision(json, source, ranks);
  }
  if (recipe.engine.cuda_graph && recipe.run.normalize_by_targets) {
    section("run").Fail("loss_normalization",
                        "counts each batch's targets, which engine.cuda_graph cannot record; leave "
                        "one of them out");
  }
  object.RefuseUnknown();
  recipe.identity =
      nlohmann::json{json["model"], json["data"], json["engine"], recipe.run.seed}.dump();
  return recipe;
}

}  // namespace dslaunch

#include "trainer/config/recipe.h"

#include <algorithm>
#include <set>

#include "trainer/base/train_error.h"
#include "trainer/config/key_table.h"
#include "trainer/config/recipe_check.h"

namespace dslaunch {
namespace {

constexpr char kDefaultDataPath[] = "/usr/share/datasets/fashion-mnist";
constexpr int64_t kMaxUnits = int64_t{1} << 20;

[[noreturn]] void FailMissing(const JsonObject& object, const char* section) {
  object.Fail(section, "is missing; a recipe has model, data, run and engine");
}

// Returns the error of a key that another key's value makes meaningless.
std::string Elsewhere(const std::string& where) {
  return "is a setting of " + where + "; remove it";
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
  if (object.Has("from")) {
    object.Fail("from",
                "is a folder, which only `dslaunch train` reads; put here the keys of the model");
  }
  (void)object.String("from");
  object.Explain(
      "a folder of Hugging Face, in place of all other keys: its config.json gives the model, and "
      "its weights are `run.init_weights` unless the recipe has that key");
  const std::optional<std::string> type = object.Word("type", types);
  object.Explain("required without `from`; `plugin`: your own model in a shared library");
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

KeyTable<DataConfig> DataKeys() {
  using D = DataConfig;
  return {
      Required(WordKey("type", &D::type,
                       {"idx", "cifar", "image_folder", "csv", "tokens", "text", "plugin"},
                       "required; `idx`: a folder with the four files of an MNIST-like data "
                       "set; `cifar`: a folder with CIFAR-10's or CIFAR-100's binary version; "
                       "`image_folder`: a folder with one of PNG and JPEG files for each class, "
                       "or `train` and `val` of such folders; `csv`: numbers, of which one "
                       "column is the label; `tokens`: token ids (nanoGPT's or llm.c's .bin, or "
                       "Megatron's .bin with its .idx); `text`: any file, whose bytes are the "
                       "tokens; `plugin`: a data set of your own, in a shared library"),
               "is missing; known: idx, cifar, image_folder, csv, tokens, text and plugin"),
      TextKey("path", &D::path,
              "a file, or a folder (tokens: with train.bin and val.bin); default for `idx`: "
              "/usr/share/datasets/fashion-mnist; a plugin may do without; `--data` overrides "
              "it"),
      BoolKey("shuffle", &D::shuffle, ""),
      BoolKey("drop_last", &D::drop_last,
              "if the number of samples is not a multiple of the number of ranks: drop the "
              "last samples instead of repeating some"),
      IntKey("prefetch", &D::prefetch, {0, 1 << 16},
             "micro-batches that a background thread reads ahead; 0: no thread")};
}

void ReadSources(JsonObject& object, const char* key, DataConfig& data) {
  for (JsonObject& item : object.Objects(key)) {
    DataSource source;
    source.path = item.String("path").value_or("");
    item.Explain("required; a file");
    if (source.path.empty()) item.Fail("path", "is missing");
    source.weight = item.Number("weight", 0).value_or(source.weight);
    item.Explain("share of the samples, relative to the other sources; default 1; not 0");
    if (source.weight == 0) item.Fail("weight", "is 0; leave the source out");
    item.RefuseUnknown();
    data.sources.push_back(std::move(source));
  }
  // The meaning in the table goes to the key that was asked for last.
  if (object.Objects(key).size() > 1000) object.Fail(key, "has more than 1000 sources");
}

nlohmann::ordered_json ShowSources(const DataConfig& data) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const DataSource& source : data.sources) {
    list.push_back({{"path", source.path}, {"weight", source.weight}});
  }
  return list;
}

// Keys of some types of data only.
struct OfDataTypes {
  const char* types;  // text for messages
  bool (*apply)(DataConfig::Type type);
  KeyTable<DataConfig> keys;
};

const std::vector<OfDataTypes>& KeysOfDataTypes() {
  using D = DataConfig;
  using Type = DataConfig::Type;
  static const std::vector<OfDataTypes> kKeys = {
      {"tokens and text",
       HoldsTokens,
       {IntKey("block_size", &D::block_size, {1, kMaxUnits},
               "tokens of a sample; default: as many as the model takes"),
        {"sources", ReadSources, ShowSources,
         "several files instead of `path`, each an object with `path` and `weight` (default 1): "
         "samples come from them in proportion to the weights, in an order that depends on nothing "
         "else. An epoch has as many samples as all of them"}}},
      {"image_folder, csv, tokens and text; idx and cifar have test files of their own, and a "
       "plugin "
       "makes the data to evaluate on itself",
       [](Type type) {
         return type != Type::kIdx && type != Type::kCifar && type != Type::kPlugin;
       },
       {TextKey("val_path", &D::val_path, "data for evaluation, instead of `val_fraction`"),
        NumberKey("val_fraction", &D::val_fraction, {0, 1},
                  "fraction at the end of `path`, or of each class of `image_folder`, that is kept "
                  "for evaluation; below 1")}},
      {"the type plugin",
       [](Type type) { return type == Type::kPlugin; },
       {TextKey("plugin", &D::plugin,
                "the plugin's shared library; default: the model's, if that is a plugin's"),
        TextKey("name", &D::name,
                "required; which data set of the plugin (`DSLAUNCH_DATASET`); `dslaunch train "
                "--list --plugin LIB.so` lists them"),
        ObjectTextKey("params", &D::params, "parameters for the plugin's data set")}},
      {"image_folder",
       [](Type type) { return type == Type::kImageFolder; },
       {IntKey("image_size", &D::image_size, {1, 4096},
               "height and width of the images that the model gets, in pixels: the shorter side "
               "is scaled to that and the centre kept")}},
      {"csv",
       [](Type type) { return type == Type::kCsv; },
       {{"label_column",
         [](JsonObject& object, const char* key, D& data) {
           data.label_column = object.StringOrInt(key).value_or("");
         },
         [](const D& data) { return data.label_column; },
         "name of the label column, or its number from 0; default: the last column"},
        TextsKey("columns", &D::columns,
                 "the columns of the features in the order of the model's inputs, by names or "
                 "numbers from 0; the others are passed over; default: all but the label"),
        TextsKey("label_names", &D::label_names,
                 "names of the classes, from class 0 on, where the label column has names; "
                 "default: labels are numbers from 0")}}};
  return kKeys;
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

// Returns whether a plugin can export a data set or metric of that name.
bool IsPluginName(const std::string& name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

// Refuses values that contradict each other or the model.
void CheckData(const JsonObject& object, const ModelConfig& model, const DataConfig& data) {
  const int64_t positions = model.needs().positions;
  if (positions > 0 && data.block_size > positions) {
    object.Fail("block_size", "is " + std::to_string(data.block_size) +
                                  ", but the model takes at most " + std::to_string(positions) +
                                  " tokens; change one of them");
  }
  if (HoldsTokens(data.type) && positions == 0 && data.block_size == 0) {
    object.Fail("block_size",
                "is missing; this model does not give the number of tokens in a sample");
  }
  if (!data.sources.empty() && !data.path.empty()) {
    object.Fail("sources", "and path exclude each other; keep one of them");
  }
  if (!data.sources.empty() && data.val_fraction > 0) {
    object.Fail("val_fraction", "is for a single path; with sources, give val_path");
  }
  if (data.val_fraction == 1) object.Fail("val_fraction", "is 1, which leaves no training data");
  if (!data.val_path.empty() && data.val_fraction > 0) {
    object.Fail("val_fraction", "and val_path exclude each other; keep one of them");
  }
  if (data.type == DataConfig::Type::kPlugin && data.plugin.empty()) {
    object.Fail("plugin", "is missing; give the path of the plugin's shared library");
  }
  if (data.type == DataConfig::Type::kPlugin && !IsPluginName(data.name)) {
    object.Fail("name", data.name.empty()
                            ? "is missing; give the name of a DSLAUNCH_DATASET of the plugin"
                            : "is \"" + data.name + "\"; names have letters, digits and _");
  }
  const std::set<std::string> distinct(data.label_names.begin(), data.label_names.end());
  if (distinct.size() < data.label_names.size()) {
    object.Fail("label_names", "has a name twice; give each class one name");
  }
}

DataConfig ParseData(JsonObject object, const ModelConfig& model) {
  DataConfig data = ReadKeys(object, DataKeys());
  CheckModelTakes(object, model, data);
  if (data.type == DataConfig::Type::kIdx && !object.Has("path")) data.path = kDefaultDataPath;
  for (const OfDataTypes& of : KeysOfDataTypes()) {
    ReadKeysIf(of.apply(data.type), object, of.keys, data, Elsewhere(of.types));
  }
  const bool plugin = data.type == DataConfig::Type::kPlugin;
  if (plugin && data.plugin.empty()) data.plugin = model.family().Library(model);
  object.RefuseUnknown();
  CheckData(object, model, data);
  return data;
}

KeyTable<RunConfig> RunKeys() {
  using R = RunConfig;
  constexpr int64_t kMostRanks = 1'000'000;
  return {
      WordKey("mode", &R::mode,
              {"train", "evaluate", "predict", "plan_memory", "plan_pipeline", "compare_precision"},
              "default train; `--eval_only`, `--plan_memory`, `--plan_pipeline`, "
              "`--compare_precision` and `predict` set it"),
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
      TextKey("resume_from", &R::resume_from,
              "start from this checkpoint: one of DeepSpeed or PyTorch, or of another run; a run "
              "that has saved a checkpoint of its own continues from that one")};
}

KeyTable<RunConfig> GenerationKeys() {
  using R = RunConfig;
  return {
      TextKey("prompt", &R::prompt, "predict: text to continue"),
      IntKey("max_new_tokens", &R::max_new_tokens, {1, kMaxUnits},
             "predict: number of tokens to generate"),
      NumberKey("temperature", &R::temperature, {0}, "predict: 0: always the most likely token"),
      IntKey("top_k", &R::top_k, {0}, "predict: sample from this many most likely tokens; 0: all")};
}

KeyTable<RunConfig> ExportKeys() {
  return {TextKey("export_hf", &RunConfig::export_hf,
                  "a folder to write config.json and model.safetensors into, as transformers reads "
                  "them")};
}

// The keys of models that can continue a text, and of those that Hugging Face has.
void ReadKeysOfFamily(JsonObject& object, const ModelFamily& family, RunConfig& run) {
  ReadKeysIf(
      family.TakesTokens(), object, GenerationKeys(), run,
      Elsewhere("the model " + TypesOf(&ModelFamily::TakesTokens) + ", which can generate text"));
  ReadKeysIf(family.InTransformers(), object, ExportKeys(), run,
             Elsewhere("the model " + TypesOf(&ModelFamily::InTransformers) +
                       ", which Hugging Face supports; a checkpoint (--checkpoint_dir) holds the "
                       "weights of any model as safetensors"));
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

// Refuses a run without what its mode needs, and keys of other modes.
void CheckMode(JsonObject& object, const RunConfig& run) {
  using Mode = RunConfig::Mode;
  const bool trains = run.mode == Mode::kTrain || run.mode == Mode::kComparePrecision;
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

void ParseLossNormalization(JsonObject& object, const DataConfig& data, RunConfig& run) {
  const std::string word = object.Word("loss_normalization", {"micro_batch", "tokens", "samples"})
                               .value_or("micro_batch");
  object.Explain(
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

// Names that results of evaluations have already.
const std::set<std::string> kResultNames = {"loss",       "accuracy", "correct", "samples",
                                            "perplexity", "tokens",   "step",    "epoch",
                                            "attempt",    "event"};

std::vector<MetricConfig> ParseMetrics(JsonObject& object, const ModelConfig& model,
                                       const DataConfig& data) {
  const std::string of_data = data.plugin.empty() ? model.family().Library(model) : data.plugin;
  const std::string library = object.String("metrics_plugin").value_or(of_data);
  object.Explain(
      "their shared library; default: that of the data, or of the model, if it is a plugin's");
  const nlohmann::json params = ParseJson(object.ObjectText("metrics_params"), "metrics_params");
  object.Explain("parameters for the metrics, an object for each name; default {}");
  const std::vector<std::string> given = object.Strings("metrics", JsonLists::kMayBeEmpty);
  object.Explain(
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
  CheckMode(object, run);
  CheckCheckpoints(object, run);
  if (run.peak_tflops == 0) object.Fail("peak_tflops", "is 0; it must be above 0");
  if (run.time_limit_s == 0) object.Fail("time_limit_s", "is 0; leave it out for no limit");
  return run;
}

// The optimizer of a recipe without one, which DeepSpeed leaves to the program.
OptimizerConfig DefaultOptimizer() {
  OptimizerConfig optimizer;
  optimizer.name = "AdamW";
  return optimizer;
}

// Reads the section, or the content of a file by which the launcher has replaced it; then
// engine_source has its name.
EngineConfig ParseEngine(const nlohmann::json& recipe, JsonObject& object, int64_t ranks) {
  const std::optional<std::string> file = object.String("engine_source");
  object.Explain("name of the file that `engine` was read from, for messages; set by dslaunch");
  if (object.HasString("engine")) {
    object.Fail("engine",
                "is the path of a file, which only `dslaunch train` reads; put here the "
                "configuration itself");
  }
  const std::optional<JsonObject> section = object.Object(
      "engine",
      "DeepSpeed's configuration, or the path of such a file. The file that `--deepspeed_config` "
      "names has the same keys at its top level.");
  if (!section) FailMissing(object, "engine");
  if (!file) return ParseEngineConfig(*section, ranks, DefaultOptimizer());
  return ParseEngineConfig(JsonObject(recipe["engine"], *file, ""), ranks, DefaultOptimizer());
}

// Returns the configuration in each precision, whatever its own is.
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

}  // namespace

std::string DataName(const DataConfig& data) {
  if (!data.sources.empty()) {
    return data.sources.front().path + " and " + std::to_string(data.sources.size() - 1) +
           " more sources";
  }
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
  const auto section = [&](const char* name, const char* meaning = "") {
    std::optional<JsonObject> found = object.Object(name, meaning);
    if (!found) FailMissing(object, name);
    return *found;
  };
  Recipe recipe;
  recipe.model = ParseModel(section("model", "The model."));
  recipe.model_text = json["model"].dump();
  recipe.data = ParseData(section("data", "The data set."), recipe.model);
  recipe.run =
      ParseRun(section("run", "Length of the run, and what it writes."), recipe.model, recipe.data);
  const bool writes_text =
      recipe.run.mode == RunConfig::Mode::kPredict && !recipe.run.prompt.empty();
  if (recipe.data.path.empty() && recipe.data.sources.empty() &&
      recipe.data.type != DataConfig::Type::kPlugin && !writes_text) {
    section("data").Fail("path", "is missing; give the path of the data (--data)");
  }
  if (recipe.run.ranks) ranks = *recipe.run.ranks;
  const bool needs_batches =
      recipe.run.mode != RunConfig::Mode::kEvaluate && recipe.run.mode != RunConfig::Mode::kPredict;
  recipe.engine = ParseEngine(json, object, needs_batches ? ranks : 0);
  if (recipe.run.steps) FitToRun(recipe.engine.scheduler, *recipe.run.steps);
  CheckRunFitsEngine(section("run"), recipe);
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

#include "cli/plan/recipe.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/text/sanitize.h"
#include "base/text/suggest.h"
#include "cli/plan/recipe_catalog.h"
#include "cli/plan/secrets.h"
#include "trainer/config/auto_values.h"
#include "trainer/config/lora_config.h"
#include "trainer/config/model_family.h"
#include "trainer/config/recipe_check.h"

namespace dslaunch {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

const std::vector<std::string> kSections = {"model", "data", "run", "engine", "lora"};

std::string JoinSections() {
  std::string list;
  for (const std::string& section : kSections) list += (list.empty() ? "" : ", ") + section;
  return list;
}

// Returns the map at `key` of `parent`, which is created if missing; nullptr if the value is not a
// map.
Json* Descend(Json& parent, const std::string& key) {
  Json& child = parent[key];
  if (child.is_null()) child = Json::object();
  return child.is_object() ? &child : nullptr;
}

Result<void> SetPath(Json& recipe, const std::string& path, Json value, const std::string& option) {
  Json* at = &recipe;
  size_t begin = 0;
  while (true) {
    const size_t dot = std::min(path.find('.', begin), path.size());
    const std::string key = path.substr(begin, dot - begin);
    if (key.empty()) {
      return Error{ExitCode::kUsage,
                   option + ": write --set key.path=value, such as --set run.seed=7"};
    }
    if (dot == path.size()) {
      (*at)[key] = std::move(value);
      return {};
    }
    at = Descend(*at, key);
    if (at == nullptr) {
      return Error{ExitCode::kUsage,
                   option + ": " + Quoted(path.substr(0, dot)) + " is not a map in this recipe"};
    }
    begin = dot + 1;
  }
}

Result<void> ApplySet(Json& recipe, const std::string& set, KeyOrigins& origins) {
  const std::string option = "--set " + Truncate(MaskedArguments({set}).front());
  const size_t equals = set.find('=');
  if (equals == std::string::npos) {
    return Error{ExitCode::kUsage,
                 option + ": write --set key.path=value, such as --set run.seed=7"};
  }
  Result<Json> value = ParseYaml(set.substr(equals + 1), option);
  if (!value) return Error{ExitCode::kUsage, value.error().message};
  const std::string key = set.substr(0, equals);
  DSL_TRY(SetPath(recipe, key, *std::move(value), option));
  origins.AddOption(key, option);
  return {};
}

std::string Absolute(const std::string& path, const fs::path& folder) {
  return (folder / path).lexically_normal().string();
}

// Returns the error of `text` as JSON, beginning with "line 2, column 7"; empty if `text` is valid
// JSON. JSON is checked separately, because the errors of the YAML parser, which later reads the
// places of keys, do not explain a missing brace.
std::string JsonSyntaxError(std::string_view text) {
  const auto keep_nothing = [](int, Json::parse_event_t, Json&) { return false; };
  try {
    [[maybe_unused]] const Json nothing = Json::parse(text, keep_nothing);
    return "";
  } catch (const Json::exception& error) {
    const std::string_view reason = error.what();
    return Truncate(reason.substr(std::min(reason.find("] ") + 2, reason.size())));
  }
}

Result<Json> ReadEngine(const std::string& path, KeyOrigins& origins) {
  DSL_TRY_ASSIGN(const std::string text, ReadTextFile(path));
  const std::string json = WithoutComments(text);
  const std::string source = Truncate(path);
  if (!BeginsJsonObject(json)) {
    return Error{ExitCode::kBadInput,
                 source +
                     ": not a DeepSpeed configuration: it must be a JSON object, which begins "
                     "with '{'"};
  }
  if (const std::string wrong = JsonSyntaxError(json); !wrong.empty()) {
    return Error{ExitCode::kBadInput, source + ": not valid JSON: " + wrong};
  }
  KeyPlaces places;
  DSL_TRY_ASSIGN(Json engine, ParseYaml(json, source, Scalars::kTyped, &places));
  origins.AddFile("engine", source, places);
  return engine;
}

// Replaces the engine section by the content of the file that the user or the recipe names. Returns
// the file's name; empty if no file is named.
Result<std::string> InlineEngine(Json& recipe, const std::string& source,
                                 const TrainOptions& options, const std::string& cwd,
                                 KeyOrigins& origins) {
  std::string path;
  if (options.deepspeed_config) {
    path = Absolute(*options.deepspeed_config, cwd);
  } else if (recipe.contains("engine") && recipe["engine"].is_string()) {
    path = Absolute(recipe["engine"], fs::path(source).parent_path());
  } else {
    return path;
  }
  DSL_TRY_ASSIGN(recipe["engine"], ReadEngine(path, origins));
  return path;
}

// The content of a file in the folder that `section: {from: FOLDER}` names.
struct NamedFile {
  std::string path;
  std::string text;
};

// Reads FOLDER/`name` if the recipe has a section `section: {from: FOLDER}`, which must have no
// other key. Returns nullopt if the recipe has no such section.
Result<std::optional<NamedFile>> ReadFrom(const Json& recipe, const std::string& section,
                                          const std::string& name, const std::string& source,
                                          const std::string& cwd, const KeyOrigins& origins) {
  const auto found = recipe.find(section);
  if (found == recipe.end() || !found->is_object() || !found->contains("from")) {
    return std::optional<NamedFile>();
  }
  const KeyOrigin origin = origins.Of(section + ".from");
  const auto fail = [&](const std::string& why) {
    return Error{origin.code, origin.place + ": " + section + ".from " + why};
  };
  const Json& from = (*found)["from"];
  if (!from.is_string()) return fail("is not the path of a folder");
  for (const auto& [key, value] : found->items()) {
    if (key != "from") return fail("gives the whole section; remove " + section + "." + key);
  }
  const bool by_option = origin.code == ExitCode::kUsage;
  NamedFile file;
  file.path = Absolute(from.get<std::string>() + "/" + name,
                       by_option ? fs::path(cwd) : fs::path(source).parent_path());
  DSL_TRY_ASSIGN(file.text, ReadTextFile(file.path));
  return std::optional(std::move(file));
}

// Replaces a section `model: {from: FOLDER}` by the model that the folder's config.json describes,
// because nodes read only the weights. A recipe without initial weights gets the weights in the
// folder.
Result<void> InlineModel(Json& recipe, const std::string& source, const std::string& cwd,
                         LoadedRecipe& loaded) {
  DSL_TRY_ASSIGN(const std::optional<NamedFile> file,
                 ReadFrom(recipe, "model", "config.json", source, cwd, loaded.origins));
  if (!file) return {};
  try {
    recipe["model"] = Json::parse(SectionOfConfigJson(file->text, file->path));
  } catch (const std::exception& error) {
    return Error{ExitCode::kBadInput, error.what()};
  }
  loaded.origins.AddFile("model", Truncate(file->path), {});
  Json& run = recipe["run"];
  if (run.is_null()) run = Json::object();
  if (!run.is_object() || run.contains("init_weights")) return {};
  const std::string folder = fs::path(file->path).parent_path();
  run["init_weights"] = folder;
  loaded.notices.push_back("initial weights: " + Truncate(folder) +
                           ", as model.from says; --set run.init_weights= starts from random ones");
  return {};
}

// Replaces a section `lora: {from: FOLDER}` by the adapters that the folder's adapter_config.json
// describes. The adapters start with the values in the folder.
Result<void> InlineLora(Json& recipe, const std::string& source, const std::string& cwd,
                        LoadedRecipe& loaded) {
  DSL_TRY_ASSIGN(const std::optional<NamedFile> file,
                 ReadFrom(recipe, "lora", kAdapterConfigFile, source, cwd, loaded.origins));
  if (!file) return {};
  try {
    recipe["lora"] = Json::parse(LoraSectionOfAdapterConfig(file->text, file->path));
  } catch (const std::exception& error) {
    return Error{ExitCode::kBadInput, error.what()};
  }
  recipe["lora"]["init_weights"] = fs::path(file->path).parent_path();
  loaded.origins.AddFile("lora", Truncate(file->path), {});
  return {};
}

void ApplyPlugin(Json& recipe, const std::string& path, KeyOrigins& origins) {
  Json& model = recipe["model"];
  Json plugin = {{"type", "plugin"}, {"path", path}};
  if (model.is_object() && model.contains("params")) plugin["params"] = model["params"];
  model = std::move(plugin);
  for (const char* key : {"model.type", "model.path"}) origins.AddOption(key, "--plugin");
}

const char* TaskName(TrainOptions::Task task) {
  switch (task) {
    case TrainOptions::Task::kTrain:
      return "train";
    case TrainOptions::Task::kEvaluate:
      return "evaluate";
    case TrainOptions::Task::kPredict:
      return "predict";
    case TrainOptions::Task::kPlanMemory:
      return "plan_memory";
    case TrainOptions::Task::kPlanPipeline:
      return "plan_pipeline";
    case TrainOptions::Task::kComparePrecision:
      return "compare_precision";
  }
  return "";
}

// An option that sets a single key of the recipe.
struct KeyOption {
  const char* option;
  const char* key;
  Json value;  // value for the key; null if the option is not given
};

std::vector<KeyOption> KeyOptions(const TrainOptions& options, const std::string& cwd) {
  const auto given = [](const auto& value) { return value ? Json(*value) : Json(); };
  const auto path = [&](const std::optional<std::string>& value) {
    return value ? Json(Absolute(*value, cwd)) : Json();
  };
  const bool other_task = options.task != TrainOptions::Task::kTrain;
  return {
      {"--steps", "run.steps", given(options.steps)},
      {"--epochs", "run.epochs", given(options.epochs)},
      {"--seed", "run.seed", given(options.seed)},
      {"--data", "data.path", given(options.data)},
      {"--init_weights", "run.init_weights", path(options.init_weights)},
      {"--checkpoint_dir", "run.checkpoint_dir", path(options.checkpoint_dir)},
      {"--save_every", "run.save_every", given(options.save_every)},
      {"--async_save", "run.async_save", options.async_save ? Json(true) : Json()},
      {"--memory_checkpoint", "run.memory_checkpoint", given(options.memory_checkpoint)},
      {"--resume", "run.resume", given(options.resume)},
      {"--load_module_only", "run.load_module_only",
       options.load_module_only ? Json(true) : Json()},
      {"--resume_from", "run.resume_from", path(options.resume_from)},
      {"--export_hf", "run.export_hf", path(options.export_hf)},
      {"--metrics_jsonl", "run.metrics_jsonl", path(options.metrics_jsonl)},
      {"--trace", "run.trace", path(options.trace)},
      {"--profile", "run.profile.enabled", options.profile ? Json(true) : Json()},
      {"--profile_sort", "run.profile.sort_by", given(options.profile_sort)},
      {"--ranks", "run.ranks", given(options.ranks)},
      {"--num_gpus", "run.ranks_per_node", given(options.ranks_per_node)},
      {"--pipeline_svg", "run.pipeline_svg", path(options.pipeline_svg)},
      {"--time_limit", "run.time_limit_s", given(options.time_limit_s)},
      {"--deterministic", "run.deterministic", options.deterministic ? Json(true) : Json()},
      {"--output", "run.predictions", path(options.output)},
      {"--eval_file", "run.eval_file", path(options.eval_file)},
      {"--tokenizer", "run.tokenizer", path(options.tokenizer)},
      {"--prompt", "run.prompt", given(options.prompt)},
      {"--prompts", "run.prompts", path(options.prompts)},
      {"--max_new_tokens", "run.max_new_tokens", given(options.max_new_tokens)},
      {"--temperature", "run.temperature", given(options.temperature)},
      {"--top_k", "run.top_k", given(options.top_k)},
      {"--top_p", "run.top_p", given(options.top_p)},
      {"--stop", "run.stop", options.stop.empty() ? Json() : Json(options.stop)},
      {"--eval_only", "run.mode", other_task ? Json(TaskName(options.task)) : Json()},
  };
}

// Returns an error if an option and a --set give the same key, because neither can be ignored.
Result<void> RefusePairs(const TrainOptions& options, const std::vector<KeyOption>& given) {
  for (const std::string& set : options.sets) {
    const std::string key = set.substr(0, set.find('='));
    const bool is_length = key == "run.steps" || key == "run.epochs";
    for (const KeyOption& item : given) {
      const std::string_view other = item.key;
      const bool same =
          key == other || (is_length && (other == "run.steps" || other == "run.epochs"));
      if (item.value.is_null() || !same) continue;
      return Error{ExitCode::kUsage,
                   std::string(item.option) + " and --set " + key +
                       (key == other ? " both set " + key : " both set the length of the run") +
                       "; give one of them"};
    }
  }
  return {};
}

// Returns a notice if --steps differs from the schedule's total_num_steps, else an empty string.
std::string ScheduleNotice(const Json& recipe, const TrainOptions& options) {
  const Json::json_pointer place("/engine/scheduler/params/total_num_steps");
  if (!options.steps || !recipe.contains(place) || !recipe[place].is_number_integer()) return "";
  const auto total = recipe[place].get<int64_t>();
  if (total == *options.steps) return "";
  const std::string key = "engine.scheduler.params.total_num_steps";
  return "--steps " + std::to_string(*options.steps) +
         " is the length of the run; the schedule of the learning rate is still of " +
         std::to_string(total) + " steps (" + key + "); --set " + key + "=" +
         std::to_string(*options.steps) + " fits it to the run";
}

// Replaces each "auto" in the engine's file by the value in `own`, the section that the file
// replaced. Returns notices about the values chosen for "auto", here and by the trainer.
std::vector<std::string> ApplyAuto(Json& recipe, const Json& own, const std::string& source,
                                   const std::string& engine_file) {
  const auto engine = recipe.find("engine");
  if (engine == recipe.end()) return {};
  const std::string file = Truncate(engine_file.empty() ? source : engine_file);
  std::vector<std::string> notices;
  for (const std::string& notice : {AutoNotice(FillAuto(*engine, own), "from the recipe " + source),
                                    AutoNotice(ResolveAuto(*engine).chosen, kTrainerDefaults)}) {
    if (!notice.empty()) notices.push_back(file + ": " + notice);
  }
  return notices;
}

Result<void> ApplyOptions(Json& recipe, const TrainOptions& options, const std::string& cwd,
                          KeyOrigins& origins) {
  const std::vector<KeyOption> key_options = KeyOptions(options, cwd);
  DSL_TRY(RefusePairs(options, key_options));
  if (options.plugin) ApplyPlugin(recipe, Absolute(*options.plugin, cwd), origins);
  for (const KeyOption& item : key_options) {
    if (item.value.is_null()) continue;
    DSL_TRY(SetPath(recipe, item.key, item.value, item.option));
    origins.AddOption(item.key, item.option);
  }
  if (options.steps) recipe["run"].erase("epochs");
  if (options.epochs) recipe["run"].erase("steps");
  for (const std::string& set : options.sets) DSL_TRY(ApplySet(recipe, set, origins));
  for (const auto& [name, given] :
       {std::pair("--save_every", options.save_every.has_value()),
        std::pair("--resume", options.resume.has_value()),
        std::pair("--async_save", options.async_save),
        std::pair("--load_module_only",
                  options.load_module_only && !recipe["run"].contains("resume_from"))}) {
    if (!given || recipe["run"].contains("checkpoint_dir")) continue;
    return Error{ExitCode::kUsage,
                 std::string(name) + " needs --checkpoint_dir, the folder of the checkpoints"};
  }
  if (recipe.contains("engine") && recipe["engine"].is_string()) {
    return Error{ExitCode::kUsage, "--set engine: name a file with --deepspeed_config FILE"};
  }
  return {};
}

std::string BuiltInNames(const std::vector<std::string>& dirs) {
  std::string list;
  for (const BuiltInRecipe& recipe : ListRecipes(dirs))
    list += (list.empty() ? "" : ", ") + recipe.name;
  return list.empty() ? "none found" : list;
}

std::optional<fs::path> FindBuiltIn(const std::string& name, const std::vector<std::string>& dirs) {
  if (name.find('/') != std::string::npos) return std::nullopt;
  for (const std::string& dir : dirs) {
    std::error_code error;
    const fs::path path = fs::path(dir) / (name + ".yaml");
    if (fs::exists(path, error)) return path;
  }
  return std::nullopt;
}

// The file of a recipe, with a notice for the user if no option chose it.
struct Choice {
  fs::path path;
  std::string notice;
  bool is_named = true;  // true for a named file or a built-in recipe
};

Result<Choice> ChooseFile(const RecipeRequest& request) {
  std::error_code error;
  std::string name;
  if (request.options.recipe) {
    name = *request.options.recipe;
    const fs::path path = fs::path(request.cwd) / name;
    if (!name.empty() && fs::exists(path, error) && !fs::is_directory(path, error))
      return Choice{path, "", NamesRecipeFile(name)};
  } else {
    const fs::path path = fs::path(request.cwd) / kDefaultRecipeFile;
    if (fs::exists(path, error))
      return Choice{path, "no recipe named: taking ./dslaunch.yaml", false};
    name = kDefaultRecipe;
  }
  if (const auto path = FindBuiltIn(name, request.recipe_dirs)) {
    if (request.options.recipe) return Choice{*path, ""};
    return Choice{*path, "no recipe named: taking the built-in " + name};
  }
  return Error{ExitCode::kBadInput, "recipe " + Quoted(name) +
                                        ": no such file, and no built-in recipe of that name; "
                                        "built-in: " +
                                        BuiltInNames(request.recipe_dirs)};
}

// Returns an error if a recipe that the user did not name loads a library, because a library is
// code.
Result<void> CheckForPlugins(const LoadedRecipe& recipe) {
  const Json json = Json::parse(recipe.json, nullptr, false);
  const auto model = json.find("model");
  const bool is_model =
      model != json.end() && model->is_object() && model->value("type", Json()) == "plugin";
  for (const auto& [key, what, ways] :
       {std::tuple("model.path", "model.type plugin", "give --plugin, or name"),
        {"data.plugin", "data.plugin", "give --set data.plugin=LIB.so, or name"},
        {"run.metrics_plugin", "run.metrics_plugin",
         "give --set run.metrics_plugin=LIB.so, or name"}}) {
    const std::string path = key;
    const size_t dot = path.find('.');
    const auto section = json.find(path.substr(0, dot));
    const bool is_given = path == "model.path" ? is_model
                                               : section != json.end() && section->is_object() &&
                                                     section->contains(path.substr(dot + 1));
    const KeyOrigin origin = recipe.origins.Of(path);
    if (!is_given || origin.code == ExitCode::kUsage) continue;  // the key was set by an option
    return Error{ExitCode::kBadInput,
                 origin.place + ": " + what +
                     " loads a library, so it is not taken from a recipe that the command line "
                     "does not name; " +
                     ways + " the recipe: train ./" + fs::path(recipe.source).filename().string()};
  }
  return {};
}

// Returns whether `document` is a DeepSpeed configuration instead of a recipe.
bool IsEngineConfiguration(const Json& document) {
  constexpr const char* kKeys[] = {"train_batch_size",
                                   "train_micro_batch_size_per_gpu",
                                   "optimizer",
                                   "zero_optimization",
                                   "fp16",
                                   "bf16",
                                   "gradient_accumulation_steps"};
  const auto has = [&](const std::string& key) { return document.contains(key); };
  return std::ranges::none_of(kSections, has) && std::ranges::any_of(kKeys, has);
}

}  // namespace

bool NamesRecipeFile(std::string_view recipe) {
  return recipe.find_first_of("/.") != std::string_view::npos;
}

Result<void> CheckSections(const Json& recipe, const std::string& source) {
  if (!recipe.is_object()) {
    return Error{
        ExitCode::kBadInput,
        source + ": not a recipe: its top level must be a map with the keys " + JoinSections()};
  }
  if (IsEngineConfiguration(recipe)) {
    return Error{ExitCode::kBadInput,
                 source +
                     ": is a DeepSpeed configuration, not a recipe; give it beside the recipe "
                     "that has the model and the data: train RECIPE --deepspeed_config " +
                     source};
  }
  std::vector<std::string> known = kSections;
  known.emplace_back(kLaunchSection);
  for (const auto& [key, value] : recipe.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string near = Nearest(key, known);
    return Error{ExitCode::kBadInput, source + ": unknown key " + Quoted(key) +
                                          (near.empty() ? "; a recipe has " + JoinSections()
                                                        : ", did you mean '" + near + "'?")};
  }
  return {};
}

Result<LoadedRecipe> ReadRecipe(std::string_view text, const std::string& source,
                                const TrainOptions& options, const std::string& cwd) {
  LoadedRecipe loaded;
  loaded.source = source;
  KeyPlaces places;
  DSL_TRY_ASSIGN(Json recipe,
                 ParseYaml(WithoutJsonComments(text), source, Scalars::kTyped, &places));
  loaded.origins.AddFile("", source, places);
  DSL_TRY(CheckSections(recipe, source));
  recipe.erase(kLaunchSection);
  const Json own_engine = recipe.value("engine", Json());
  DSL_TRY_ASSIGN(const std::string engine_file,
                 InlineEngine(recipe, source, options, cwd, loaded.origins));
  DSL_TRY(ApplyOptions(recipe, options, cwd, loaded.origins));
  if (Result<void> checked = CheckSections(recipe, "--set"); !checked) {
    return Error{ExitCode::kUsage, checked.error().message};
  }
  if (recipe.contains(kLaunchSection)) {
    return Error{ExitCode::kUsage,
                 "--set launch: give launch options before 'train', such as --num_nodes 2"};
  }
  loaded.notices = ApplyAuto(recipe, own_engine, source, engine_file);
  DSL_TRY(InlineModel(recipe, source, cwd, loaded));
  DSL_TRY(InlineLora(recipe, source, cwd, loaded));
  if (const std::string notice = ScheduleNotice(recipe, options); !notice.empty()) {
    loaded.notices.push_back(notice);
  }
  if (!engine_file.empty()) recipe["engine_source"] = engine_file;
  try {
    loaded.json = recipe.dump();
  } catch (const Json::exception&) {
    return Error{ExitCode::kBadInput, source + ": holds text that is not UTF-8; save it as UTF-8"};
  }
  if (loaded.json.size() > kMaxRecipeJsonBytes) {
    return Error{ExitCode::kBadInput,
                 source + ": too large: " + std::to_string(loaded.json.size()) +
                     " bytes as JSON, at most " + std::to_string(kMaxRecipeJsonBytes) + " fit"};
  }
  return loaded;
}

Result<LoadedRecipe> LoadRecipe(const RecipeRequest& request) {
  DSL_TRY_ASSIGN(const Choice choice, ChooseFile(request));
  DSL_TRY_ASSIGN(const std::string text,
                 choice.is_named ? ReadTextFile(choice.path) : ReadUnnamedTextFile(choice.path));
  DSL_TRY_ASSIGN(LoadedRecipe recipe,
                 ReadRecipe(text, Truncate(choice.path.string()), request.options, request.cwd));
  if (!choice.is_named) DSL_TRY(CheckForPlugins(recipe));
  if (!choice.notice.empty()) recipe.notices.insert(recipe.notices.begin(), choice.notice);
  return recipe;
}

int64_t MemoryCheckpointOf(const LoadedRecipe& recipe) {
  const Json run = Json::parse(recipe.json).value("run", Json::object());
  return run.value("mode", "train") == "train" ? run.value("memory_checkpoint", int64_t{0}) : 0;
}

Result<void> CheckContent(const LoadedRecipe& recipe, int64_t ranks,
                          const std::vector<int>& ranks_of_nodes) {
  const std::optional<RecipeProblem> problem = CheckRecipe(recipe.json, ranks, ranks_of_nodes);
  if (!problem) return {};
  std::string key = problem->key;
  if (!problem->source.empty()) key = key.empty() ? "engine" : "engine." + key;
  const KeyOrigin origin = recipe.origins.Of(key);
  return Error{origin.code, origin.place + ": " + problem->message};
}

}  // namespace dslaunch

#include "cli/recipe.h"

#include <yaml-cpp/anchor.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/suggest.h"

namespace dslaunch {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr size_t kMaxExpandedBytes = 4u << 20;  // of all values, aliases expanded
constexpr size_t kValueBytes = 16;              // what a value counts besides its text
constexpr size_t kMaxDepth = 64;
constexpr char kDefaultFile[] = "dslaunch.yaml";
constexpr char kDefaultName[] = "fashion_mnist";
const std::vector<std::string> kSections = {"model", "data", "run", "engine"};

// What was wrong and where, thrown through yaml-cpp's parser and caught in ParseYaml.
struct BadYaml {
  YAML::Mark mark;
  std::string what;
};

bool Contains(std::initializer_list<std::string_view> words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// The shape of YAML 1.2's decimal integers and floats; JSON's numbers have it too.
bool LooksLikeNumber(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  const size_t digits = static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }));
  if (digits == 0 || !((text[0] >= '0' && text[0] <= '9') || text[0] == '.')) return false;
  double ignored;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), ignored);
  return status != std::errc::invalid_argument && end == text.data() + text.size();
}

Json ReadNumber(std::string_view text, const YAML::Mark& mark) {
  const bool plus = text[0] == '+';
  if (plus) text.remove_prefix(1);
  const char* const end = text.data() + text.size();
  if (text.find_first_of(".eE") == std::string_view::npos) {
    int64_t whole = 0;
    if (auto [stop, status] = std::from_chars(text.data(), end, whole);
        status == std::errc() && stop == end) {
      return whole;
    }
    uint64_t large = 0;
    if (auto [stop, status] = std::from_chars(text.data(), end, large);
        status == std::errc() && stop == end) {
      return large;
    }
    throw BadYaml{mark, "whole number out of range: " + std::string(text)};
  }
  double value = 0;
  const auto [stop, status] = std::from_chars(text.data(), end, value);
  if (status != std::errc() || stop != end || !std::isfinite(value)) {
    throw BadYaml{mark, "number out of range: " + std::string(text)};
  }
  return value;
}

// Types as in YAML 1.2's core schema, numbers in decimal only, so `1e-3` is a number and `no` is a
// string.
Json PlainScalar(const std::string& text, const YAML::Mark& mark) {
  if (Contains({"", "~", "null", "Null", "NULL"}, text)) return nullptr;
  if (Contains({"true", "True", "TRUE"}, text)) return true;
  if (Contains({"false", "False", "FALSE"}, text)) return false;
  if (Contains({".inf", "-.inf", "+.inf", ".nan", ".Inf", "-.Inf", "+.Inf", ".NaN", ".NAN"},
               text)) {
    throw BadYaml{mark, "'" + text + "' is not a finite number"};
  }
  if (LooksLikeNumber(text)) return ReadNumber(text, mark);
  return text;
}

// Builds JSON from the parser's events. Bounded in depth and size, aliases included.
class JsonBuilder : public YAML::EventHandler {
 public:
  Json Take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Add(nullptr, mark, anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) throw BadYaml{mark, "alias to the value it is part of"};
    Count(found->second.bytes, mark);
    if (open_.size() + found->second.height > kMaxDepth) TooDeep(mark);
    if (!open_.empty())
      open_.back().height = std::max(open_.back().height, found->second.height + 1);
    Place(found->second.value, mark);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (tag == "?") {
      if (AtKey()) {
        if (value == "<<")
          throw BadYaml{mark, "merge keys ('<<') are not supported; write the keys out"};
        Add(value, mark, anchor);
      } else {
        Add(PlainScalar(value, mark), mark, anchor);
      }
    } else if (tag == "!" || tag == "tag:yaml.org,2002:str") {
      Add(value, mark, anchor);
    } else {
      throw BadYaml{mark, "tag '" + tag + "' is not supported; write a plain value"};
    }
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Open(Json::array(), mark, tag, anchor);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Open(Json::object(), mark, tag, anchor);
  }
  void OnMapEnd() override { Close(); }

 private:
  struct Container {
    Json value;
    YAML::Mark mark;
    YAML::anchor_t anchor;
    std::optional<std::string> key;  // of a map, when its value is next
    size_t bytes_before = 0;         // bytes_ when it was opened
    size_t height = 1;               // nested levels, itself included
  };
  struct Anchored {
    Json value;
    size_t bytes;
    size_t height;
  };

  [[noreturn]] static void TooDeep(const YAML::Mark& mark) {
    throw BadYaml{mark, "nested more than " + std::to_string(kMaxDepth) + " levels deep"};
  }

  bool AtKey() const {
    return !open_.empty() && open_.back().value.is_object() && !open_.back().key;
  }

  void Count(size_t bytes, const YAML::Mark& mark) {
    bytes_ += bytes;
    if (bytes_ > kMaxExpandedBytes) throw BadYaml{mark, "too large (aliases are expanded)"};
  }

  void Add(Json value, const YAML::Mark& mark, YAML::anchor_t anchor) {
    const size_t bytes =
        kValueBytes + (value.is_string() ? value.get_ref<const std::string&>().size() : 0);
    Count(bytes, mark);
    if (anchor != YAML::NullAnchor) anchors_[anchor] = {value, bytes, 0};
    Place(std::move(value), mark);
  }

  void Open(Json empty, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (!tag.empty() && tag != "?" && tag != "!") {
      throw BadYaml{mark, "tag '" + tag + "' is not supported; write a plain value"};
    }
    if (AtKey()) throw BadYaml{mark, "a key must be a plain word"};
    if (open_.size() == kMaxDepth) TooDeep(mark);
    const size_t bytes_before = bytes_;
    Count(kValueBytes, mark);
    open_.push_back({std::move(empty), mark, anchor, std::nullopt, bytes_before, 1});
  }

  void Close() {
    Container done = std::move(open_.back());
    open_.pop_back();
    if (!open_.empty()) open_.back().height = std::max(open_.back().height, done.height + 1);
    if (done.anchor != YAML::NullAnchor) {
      anchors_[done.anchor] = {done.value, bytes_ - done.bytes_before, done.height};
    }
    Place(std::move(done.value), done.mark);
  }

  void Place(Json value, const YAML::Mark& mark) {
    if (open_.empty()) {
      root_ = std::move(value);
      return;
    }
    Container& parent = open_.back();
    if (parent.value.is_array()) {
      parent.value.push_back(std::move(value));
    } else if (parent.key) {
      parent.value[*parent.key] = std::move(value);
      parent.key.reset();
    } else {
      if (!value.is_string()) throw BadYaml{mark, "a key must be a plain word"};
      parent.key = value.get<std::string>();
      if (parent.value.contains(*parent.key)) {
        throw BadYaml{mark, "key '" + *parent.key + "' is given twice; keep one"};
      }
    }
  }

  Json root_;
  std::vector<Container> open_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  size_t bytes_ = 0;
};

std::string At(const std::string& source, const YAML::Mark& mark) {
  if (mark.is_null()) return source;
  return source + ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1);
}

// yaml-cpp's exceptions end here.
Result<Json> ParseYaml(std::string_view text, const std::string& source) {
  JsonBuilder builder;
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return Json(nullptr);
    JsonBuilder second;
    if (parser.HandleNextDocument(second)) {
      return Error{ExitCode::kBadInput, source + ": holds more than one document; keep one"};
    }
    return builder.Take();
  } catch (const BadYaml& bad) {
    return Error{ExitCode::kBadInput, At(source, bad.mark) + ": " + bad.what};
  } catch (const YAML::Exception& error) {
    return Error{ExitCode::kBadInput, At(source, error.mark) + ": not valid YAML: " + error.msg};
  }
}

std::string JoinSections() {
  std::string list;
  for (const std::string& section : kSections) list += (list.empty() ? "" : ", ") + section;
  return list;
}

Result<void> CheckSections(const Json& recipe, const std::string& source) {
  if (!recipe.is_object()) {
    return Error{
        ExitCode::kBadInput,
        source + ": not a recipe: its top level must be a map with the keys " + JoinSections()};
  }
  for (const auto& [key, value] : recipe.items()) {
    if (std::find(kSections.begin(), kSections.end(), key) != kSections.end()) continue;
    const std::string near = Nearest(key, kSections);
    return Error{ExitCode::kBadInput, source + ": unknown key '" + key + "'" +
                                          (near.empty() ? "; a recipe has " + JoinSections()
                                                        : ", did you mean '" + near + "'?")};
  }
  return {};
}

// The map at `key` of `parent`, made when missing; nullptr when something else is there.
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
                   option + ": '" + path.substr(0, dot) + "' is not a map in this recipe"};
    }
    begin = dot + 1;
  }
}

Result<void> ApplySet(Json& recipe, const std::string& set) {
  const std::string option = "--set " + set;
  const size_t equals = set.find('=');
  if (equals == std::string::npos) {
    return Error{ExitCode::kUsage,
                 option + ": write --set key.path=value, such as --set run.seed=7"};
  }
  Result<Json> value = ParseYaml(set.substr(equals + 1), option);
  if (!value) return Error{ExitCode::kUsage, value.error().message};
  return SetPath(recipe, set.substr(0, equals), *std::move(value), option);
}

Error CannotRead(const fs::path& path, const std::string& why) {
  return {ExitCode::kBadInput, path.string() + ": cannot be read: " + why};
}

Result<std::string> ReadFile(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return CannotRead(path, "it is a folder; name the file in it");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return CannotRead(path, std::strerror(errno));
  std::string text(kMaxRecipeFileBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(stream.gcount()));
  if (stream.bad()) return CannotRead(path, std::strerror(errno));
  if (text.size() > kMaxRecipeFileBytes) return CannotRead(path, "it is larger than 1 MiB");
  return text;
}

std::string Absolute(const std::string& path, const fs::path& folder) {
  return (folder / path).lexically_normal().string();
}

bool BeginsJsonObject(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && text[begin] == '{';
}

// What is wrong with `text` as JSON, from "line 2, column 7" on; empty: nothing. The YAML parser,
// which reads it afterwards and knows the places of keys, is of little help with a missing brace.
std::string JsonSyntaxError(std::string_view text) {
  const auto keep_nothing = [](int, Json::parse_event_t, Json&) { return false; };
  try {
    [[maybe_unused]] const Json nothing = Json::parse(text, keep_nothing);
    return "";
  } catch (const Json::exception& error) {
    std::string reason = error.what();
    return reason.substr(std::min(reason.find("] ") + 2, reason.size()));
  }
}

Result<Json> ReadEngine(const std::string& path) {
  DSL_TRY_ASSIGN(const std::string text, ReadFile(path));
  const std::string json = WithoutComments(text);
  if (!BeginsJsonObject(json)) {
    return Error{ExitCode::kBadInput,
                 path +
                     ": not a DeepSpeed configuration: it must be a JSON object, which begins "
                     "with '{'"};
  }
  if (const std::string wrong = JsonSyntaxError(json); !wrong.empty()) {
    return Error{ExitCode::kBadInput, path + ": not valid JSON: " + wrong};
  }
  return ParseYaml(json, path);
}

// Puts the file that the user or the recipe names in the place of the engine section. Returns the
// file's name; empty: none was named.
Result<std::string> InlineEngine(Json& recipe, const std::string& source,
                                 const TrainOptions& options, const std::string& cwd) {
  std::string path;
  if (options.deepspeed_config) {
    path = Absolute(*options.deepspeed_config, cwd);
  } else if (recipe.contains("engine") && recipe["engine"].is_string()) {
    path = Absolute(recipe["engine"], fs::path(source).parent_path());
  } else {
    return path;
  }
  DSL_TRY_ASSIGN(recipe["engine"], ReadEngine(path));
  return path;
}

void ApplyPlugin(Json& recipe, const std::string& path) {
  Json& model = recipe["model"];
  Json plugin = {{"type", "plugin"}, {"path", path}};
  if (model.is_object() && model.contains("params")) plugin["params"] = model["params"];
  model = std::move(plugin);
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
  }
  return "";
}

// An option that sets one key.
struct KeyOption {
  const char* option;
  const char* key;
  Json value;  // null: not given
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
      {"--resume", "run.resume", given(options.resume)},
      {"--load_module_only", "run.load_module_only",
       options.load_module_only ? Json(true) : Json()},
      {"--export_hf", "run.export_hf", path(options.export_hf)},
      {"--metrics_jsonl", "run.metrics_jsonl", path(options.metrics_jsonl)},
      {"--trace", "run.trace", path(options.trace)},
      {"--pipeline_svg", "run.pipeline_svg", path(options.pipeline_svg)},
      {"--time_limit", "run.time_limit_s", given(options.time_limit_s)},
      {"--deterministic", "run.deterministic", options.deterministic ? Json(true) : Json()},
      {"--output", "run.predictions", path(options.output)},
      {"--prompt", "run.prompt", given(options.prompt)},
      {"--max_new_tokens", "run.max_new_tokens", given(options.max_new_tokens)},
      {"--temperature", "run.temperature", given(options.temperature)},
      {"--top_k", "run.top_k", given(options.top_k)},
      {"--eval_only", "run.mode", other_task ? Json(TaskName(options.task)) : Json()},
  };
}

Result<void> ApplyOptions(Json& recipe, const TrainOptions& options, const std::string& cwd) {
  if (options.plugin) ApplyPlugin(recipe, Absolute(*options.plugin, cwd));
  for (const KeyOption& item : KeyOptions(options, cwd)) {
    if (!item.value.is_null()) DSL_TRY(SetPath(recipe, item.key, item.value, item.option));
  }
  if (options.steps) recipe["run"].erase("epochs");
  if (options.epochs) recipe["run"].erase("steps");
  for (const std::string& set : options.sets) DSL_TRY(ApplySet(recipe, set));
  for (const auto& [name, given] : {std::pair("--save_every", options.save_every.has_value()),
                                    std::pair("--resume", options.resume.has_value()),
                                    std::pair("--async_save", options.async_save),
                                    std::pair("--load_module_only", options.load_module_only)}) {
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
  std::vector<std::string> names;
  for (const std::string& dir : dirs) {
    std::error_code error;
    for (const fs::directory_entry& entry : fs::directory_iterator(dir, error)) {
      if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
    }
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
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

// Which file, and what to tell the user when nobody chose it.
struct Choice {
  fs::path path;
  std::string notice;
};

Result<Choice> ChooseFile(const RecipeRequest& request) {
  std::error_code error;
  std::string name;
  if (request.options.recipe) {
    name = *request.options.recipe;
    const fs::path path = fs::path(request.cwd) / name;
    if (!name.empty() && fs::exists(path, error) && !fs::is_directory(path, error))
      return Choice{path, ""};
  } else {
    const fs::path path = fs::path(request.cwd) / kDefaultFile;
    if (fs::exists(path, error)) return Choice{path, "no recipe named: taking ./dslaunch.yaml"};
    name = kDefaultName;
  }
  if (const auto path = FindBuiltIn(name, request.recipe_dirs)) {
    if (request.options.recipe) return Choice{*path, ""};
    return Choice{*path, "no recipe named: taking the built-in " + name};
  }
  return Error{ExitCode::kBadInput, "recipe '" + name +
                                        "': no such file, and no built-in recipe of that name; "
                                        "built-in: " +
                                        BuiltInNames(request.recipe_dirs)};
}

}  // namespace

std::string WithoutComments(std::string_view text) {
  std::string out(text);
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] == '"') {
      for (++i; i < out.size() && out[i] != '"'; ++i) i += out[i] == '\\';
      continue;
    }
    const std::string_view start = std::string_view(out).substr(i, 2);
    if (start != "//" && start != "/*") continue;
    const size_t end = start == "//" ? out.find('\n', i) : out.find("*/", i + 2);
    const size_t stop =
        std::min(out.size(), start == "//" || end == std::string::npos ? end : end + 2);
    for (; i < stop; ++i) {
      if (out[i] != '\n') out[i] = ' ';
    }
    --i;
  }
  return out;
}

Result<std::string> RecipeJson(std::string_view text, const std::string& source,
                               const TrainOptions& options, const std::string& cwd) {
  const std::string uncommented = WithoutComments(text);
  const bool is_json = BeginsJsonObject(uncommented);
  DSL_TRY_ASSIGN(Json recipe, ParseYaml(is_json ? uncommented : text, source));
  DSL_TRY(CheckSections(recipe, source));
  DSL_TRY_ASSIGN(const std::string engine_file, InlineEngine(recipe, source, options, cwd));
  DSL_TRY(ApplyOptions(recipe, options, cwd));
  if (Result<void> checked = CheckSections(recipe, "--set"); !checked) {
    return Error{ExitCode::kUsage, checked.error().message};
  }
  if (!engine_file.empty()) recipe["engine_source"] = engine_file;
  std::string json;
  try {
    json = recipe.dump();
  } catch (const Json::exception&) {
    return Error{ExitCode::kBadInput, source + ": holds text that is not UTF-8; save it as UTF-8"};
  }
  if (json.size() > kMaxRecipeJsonBytes) {
    return Error{ExitCode::kBadInput, source + ": too large: " + std::to_string(json.size()) +
                                          " bytes as JSON, at most " +
                                          std::to_string(kMaxRecipeJsonBytes) + " fit"};
  }
  return json;
}

Result<Recipe> LoadRecipe(const RecipeRequest& request) {
  DSL_TRY_ASSIGN(const Choice choice, ChooseFile(request));
  DSL_TRY_ASSIGN(const std::string text, ReadFile(choice.path));
  Recipe recipe;
  recipe.source = choice.path.string();
  recipe.notice = choice.notice;
  DSL_TRY_ASSIGN(recipe.json, RecipeJson(text, recipe.source, request.options, request.cwd));
  return recipe;
}

}  // namespace dslaunch

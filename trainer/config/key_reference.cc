#include "trainer/config/key_reference.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "trainer/config/json/key_record.h"
#include "trainer/config/recipe.h"

namespace dslaunch {
namespace {

// A sample recipe, with which a reader reads the keys of one type in one section.
struct Sample {
  std::string section;  // section whose keys depend on `type`; empty if there is none
  std::string type;
  nlohmann::json recipe;
};

nlohmann::json With(const ModelFamily& family) {
  nlohmann::json recipe = {
      {"model", family.LeastSection()},
      {"data", {{"type", "idx"}}},
      {"run", {{"steps", 1}}},
      {"engine", {{"train_batch_size", 8}, {"bf16", nlohmann::json::object()}}}};
  recipe["model"]["type"] = family.type();
  if (family.TakesTokens()) recipe["data"] = {{"type", "text"}, {"path", "text"}};
  return recipe;
}

// Returns a recipe with a model of the first family that takes tokens, or the first that takes
// none.
nlohmann::json Base(bool tokens) {
  const auto family = std::ranges::find(ModelFamilies(), tokens, &ModelFamily::TakesTokens);
  return With(**family);
}

Sample ModelSample(const ModelFamily& family) { return {"model", family.type(), With(family)}; }

Sample DataSample(const std::string& type) {
  nlohmann::json recipe = Base(type == "tokens" || type == "text" || type == "chat");
  recipe["data"] = {{"type", type}, {"path", "data"}};
  if (type == "tokens") recipe["data"] = {{"type", type}, {"sources", {{{"path", "data"}}}}};
  if (type == "plugin") recipe["data"].update({{"plugin", "libmine.so"}, {"name", "mine"}});
  return {"data", type, std::move(recipe)};
}

Sample OptimizerSample(const std::string& type, nlohmann::json params) {
  nlohmann::json recipe = Base(/*tokens=*/false);
  recipe["engine"]["optimizer"] = {{"type", type},
                                   {"params", std::move(params)},
                                   {"param_groups", {{{"names", {"bias"}}, {"weight_decay", 0}}}}};
  return {"engine.optimizer", type, std::move(recipe)};
}

Sample SchedulerSample(const std::string& type, nlohmann::json params) {
  nlohmann::json recipe = Base(/*tokens=*/false);
  recipe["engine"]["scheduler"] = {{"type", type}, {"params", std::move(params)}};
  return {"engine.scheduler", type, std::move(recipe)};
}

Sample EngineSample(const char* key, nlohmann::json value) {
  nlohmann::json recipe = Base(/*tokens=*/false);
  recipe["engine"][key] = std::move(value);
  return {"", "", std::move(recipe)};
}

Sample ParallelSample(const std::string& mode) {
  nlohmann::json recipe = Base(/*tokens=*/false);
  recipe["engine"]["parallel"] = {{"mode", mode}};
  if (mode == "local_sgd" || mode == "diloco") recipe["engine"]["parallel"]["inner_steps"] = 1;
  return {"engine.parallel", mode, std::move(recipe)};
}

std::vector<Sample> Samples() {
  std::vector<Sample> samples;
  for (const ModelFamily* family : ModelFamilies()) samples.push_back(ModelSample(*family));
  for (const char* type :
       {"idx", "cifar", "image_folder", "csv", "tokens", "text", "chat", "plugin"})
    samples.push_back(DataSample(type));
  nlohmann::json profiled = Base(/*tokens=*/true);
  profiled["run"]["profile"] = nlohmann::json::object();
  samples.push_back({"", "", std::move(profiled)});
  nlohmann::json adapted = Base(/*tokens=*/true);
  adapted["lora"] = {{"rank", 8}, {"alpha", 16}, {"targets", "all-linear"}};
  samples.push_back({"", "", std::move(adapted)});
  for (const char* type : {"Adam", "AdamW", "SGD", "Adagrad", "RMSprop", "Lamb", "Lion",
                           "OneBitAdam", "ZeroOneAdam", "OneBitLamb"})
    samples.push_back(OptimizerSample(type, nlohmann::json::object()));
  samples.push_back(OptimizerSample("Adam", {{"torch_adam", true}}));
  samples.push_back(OptimizerSample("AdamW", {{"torch_adam", true}}));
  samples.push_back(SchedulerSample("WarmupLR", nlohmann::json::object()));
  samples.push_back(SchedulerSample("WarmupDecayLR", {{"total_num_steps", 10}}));
  samples.push_back(SchedulerSample("WarmupCosineLR", {{"total_num_steps", 10}}));
  samples.push_back(SchedulerSample("OneCycle", {{"cycle_min_lr", 0}, {"cycle_max_lr", 1}}));
  samples.push_back(SchedulerSample("LRRangeTest", nlohmann::json::object()));
  samples.push_back(SchedulerSample("StepLR", {{"step_size", 1}}));
  samples.push_back(SchedulerSample("CosineAnnealingLR", {{"T_max", 1}}));
  samples.push_back(SchedulerSample("CosineAnnealingWarmRestarts", {{"T_0", 1}}));
  samples.push_back(EngineSample("amp", {{"enabled", true}, {"loss_scale", "dynamic"}}));
  for (const char* mode : {"all_reduce", "parameter_server", "local_sgd", "diloco", "powersgd"})
    samples.push_back(ParallelSample(mode));
  samples.push_back(EngineSample("pipeline", {{"stages", "auto"}}));
  samples.push_back(EngineSample("zero_optimization", true));
  return samples;
}

std::string ParentOf(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

// A key as all samples together describe it.
struct Found {
  ReferenceKey key;
  std::set<std::string> values;
  std::vector<std::string> types;
  std::string section;  // section that has the types in `types`
};

std::vector<std::string> SchemasOf(const KeyUse& use) {
  if (use.schema.empty()) return {};
  return {use.schema};
}

void Add(const KeyUse& use, const Sample& sample, std::vector<std::string>& order,
         std::map<std::string, Found>& found) {
  auto [place, is_new] = found.try_emplace(use.path);
  Found& entry = place->second;
  if (entry.key.meaning.empty()) entry.key.meaning = use.meaning;
  if (is_new) {
    order.push_back(use.path);
    entry.key = {use.path, use.value, use.refusal, {}, use.meaning};
    entry.key.schemas = SchemasOf(use);
    entry.values = {use.value};
  } else if (!entry.key.refusal.empty() && use.refusal.empty()) {
    entry.key.value = use.value;  // at least one type supports the key
    entry.key.schemas = SchemasOf(use);
    entry.key.refusal.clear();
    entry.types.clear();
    entry.values = {use.value};
  } else if (entry.key.refusal.empty() != use.refusal.empty()) {
    return;  // this type refuses the key, but another type supports it
  } else if (entry.values.insert(use.value).second && use.refusal.empty()) {
    if (!entry.key.value.empty())
      entry.key.value += " or " + use.value;  // an empty value means that the key is a section
    if (!use.schema.empty()) entry.key.schemas.push_back(use.schema);
  }
  if (sample.section.empty() || !use.path.starts_with(sample.section + ".")) return;
  entry.section = sample.section;
  if (std::ranges::find(entry.types, sample.type) == entry.types.end())
    entry.types.push_back(sample.type);
}

// Moves sections behind the other keys of the section that contains them, so that each section is
// one table.
void SortBySection(std::vector<ReferenceKey>& keys) {
  std::map<std::string, size_t> first;
  for (const ReferenceKey& key : keys) first.try_emplace(ParentOf(key.path), first.size());
  std::ranges::stable_sort(keys, {},
                           [&](const ReferenceKey& key) { return first.at(ParentOf(key.path)); });
}

}  // namespace

std::vector<ReferenceKey> RecipeKeys() {
  std::vector<std::string> order;
  std::map<std::string, Found> found;
  std::map<std::string, std::set<std::string>> all_types;
  for (const Sample& sample : Samples()) {
    KeyRecord record;
    (void)ParseRecipe(sample.recipe.dump(), "reference", 1);
    if (!sample.section.empty()) all_types[sample.section].insert(sample.type);
    for (const KeyUse& use : record.uses()) Add(use, sample, order, found);
  }
  std::vector<ReferenceKey> keys;
  for (const std::string& path : order) {
    Found& entry = found.at(path);
    if (!entry.section.empty() && entry.types.size() < all_types.at(entry.section).size())
      entry.key.types = entry.types;
    if (!entry.key.refusal.empty()) entry.key.meaning.clear();
    keys.push_back(std::move(entry.key));
  }
  SortBySection(keys);
  return keys;
}

}  // namespace dslaunch

#include "cli/plan/recipe_catalog.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/os/exported_symbols.h"
#include "base/text/sanitize.h"
#include "base/text/split_lines.h"
#include "base/text/suggest.h"
#include "base/text/text_table.h"
#include "cli/plan/yaml_document.h"
#include "trainer/config/json/other_names.h"
#include "trainer/config/key_reference.h"

namespace dslaunch {
namespace {

namespace fs = std::filesystem;

// Returns the first clause of the comment at the top of a recipe.
std::string AboutOf(std::string_view text) {
  std::string comment;
  for (const std::string_view line : SplitLines(text)) {
    if (!line.starts_with('#')) break;
    std::string_view words = line.substr(1);
    words.remove_prefix(std::min(words.find_first_not_of(' '), words.size()));
    comment += (comment.empty() ? "" : " ") + std::string(words);
  }
  size_t end = comment.size();
  for (const char* mark : {". ", ": "}) end = std::min(end, comment.find(mark));
  comment.resize(end);
  if (comment.ends_with('.')) comment.pop_back();
  return comment;
}

std::string_view ParentOf(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? "" : path.substr(0, dot);
}

std::string_view LastPart(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

bool IsSection(const ReferenceKey& key) { return key.value.empty(); }

// Removes the backquotes in which the pages of docs/reference put code.
std::string WithoutQuotes(std::string text) {
  std::erase(text, '`');
  return text;
}

std::string Explanation(const ReferenceKey& key) {
  std::string text = key.path + ": " + WithoutQuotes(key.value) + "\n";
  std::string types;
  for (const std::string& type : key.types) types += (types.empty() ? "" : ", ") + type;
  if (!types.empty()) text += "    of " + types + "\n";
  if (!key.refusal.empty()) return text + "    no other value is taken: it " + key.refusal + "\n";
  return text + "    " + WithoutQuotes(key.meaning) + "\n";
}

// Returns the meaning of a section, and a table of its keys.
std::string SectionText(const std::vector<ReferenceKey>& keys, std::string_view section) {
  std::string text;
  std::vector<std::vector<std::string>> rows;
  for (const ReferenceKey& key : keys) {
    if (key.path == section && !key.meaning.empty())
      text = key.path + ": " + WithoutQuotes(key.meaning) + "\n\n";
    if (ParentOf(key.path) != section || !key.refusal.empty()) continue;
    rows.push_back({key.path, IsSection(key) ? "section" : WithoutQuotes(key.value)});
  }
  return text + TextTable(rows, "  ");
}

std::string SectionList(const std::vector<ReferenceKey>& keys) {
  std::vector<std::vector<std::string>> rows;
  for (const ReferenceKey& key : keys) {
    if (IsSection(key)) rows.push_back({key.path, WithoutQuotes(key.meaning)});
  }
  return TextTable(rows) + "\ndslaunch recipe explain KEY explains a section or a key.\n";
}

Error UnknownKey(const std::vector<ReferenceKey>& keys, const std::string& key) {
  std::vector<std::string> paths, last_parts;
  std::set<std::string> known;
  for (const ReferenceKey& one : keys) {
    paths.push_back(one.path);
    last_parts.emplace_back(LastPart(one.path));
    known.insert(last_parts.back());
  }
  const std::string last(LastPart(key));
  std::string near = NameHere(last, known).value_or("");
  if (near.empty()) near = Nearest(key, paths);
  if (near.empty()) near = Nearest(last, last_parts);
  const std::string_view advice = AdviceInstead(last);
  if (!advice.empty())
    return {ExitCode::kUsage, "recipe explain: " + Quoted(key) + " " + std::string(advice)};
  return {ExitCode::kUsage, "recipe explain: no key " + Quoted(key) +
                                (near.empty() ? "; dslaunch recipe explain lists the sections"
                                              : ", did you mean " + near + "?")};
}

}  // namespace

std::vector<BuiltInRecipe> ListRecipes(const std::vector<std::string>& folders) {
  std::vector<BuiltInRecipe> recipes;
  for (const std::string& folder : folders) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      if (entry->path().extension() != ".yaml") continue;
      BuiltInRecipe recipe = {entry->path().stem().string(), entry->path().string(), ""};
      if (std::ranges::count(recipes, recipe.name, &BuiltInRecipe::name) > 0) continue;
      if (const Result<std::string> text = ReadTextFile(recipe.path); text.ok())
        recipe.about = AboutOf(*text);
      recipes.push_back(std::move(recipe));
    }
  }
  std::ranges::sort(recipes, {}, &BuiltInRecipe::name);
  return recipes;
}

std::string RecipeTable(const std::vector<BuiltInRecipe>& recipes) {
  std::vector<std::vector<std::string>> rows = {{"RECIPE", "WHAT IT TRAINS"}};
  for (const BuiltInRecipe& recipe : recipes) rows.push_back({recipe.name, recipe.about});
  return TextTable(rows);
}

Result<std::string> PluginTable(const std::string& path) {
  std::vector<std::vector<std::string>> rows = {{"PART", "NAME", "IN THE RECIPE"}};
  DSL_TRY_ASSIGN(const std::vector<std::string> all, ExportedSymbols(path, "dslaunch_"));
  if (std::ranges::find(all, "plugin") != all.end())
    rows.push_back({"model", "-", "model.type plugin, model.path"});
  for (const auto& [part, use] : {std::pair("dataset", "data.type plugin, data.plugin, data.name"),
                                  std::pair("metric", "run.metrics, run.metrics_plugin")}) {
    const std::string prefix = std::string(part) + "_";
    for (const std::string& name : all) {
      if (name.starts_with(prefix) && name.size() > prefix.size())
        rows.push_back({part, name.substr(prefix.size()), use});
    }
  }
  if (rows.size() == 1) {
    return Error{ExitCode::kBadInput,
                 Truncate(path) +
                     ": no plugin; it has no DSLAUNCH_PLUGIN, DSLAUNCH_DATASET or "
                     "DSLAUNCH_METRIC (dslaunch/plugin.h)"};
  }
  return TextTable(rows);
}

Result<std::string> RecipeText(const std::vector<BuiltInRecipe>& recipes, const std::string& name) {
  std::vector<std::string> names;
  for (const BuiltInRecipe& recipe : recipes) {
    if (recipe.name == name) return ReadTextFile(recipe.path);
    names.push_back(recipe.name);
  }
  const std::string near = Nearest(name, names);
  return Error{ExitCode::kUsage, "recipe show: no built-in recipe " + Quoted(name) +
                                     (near.empty() ? "; dslaunch recipe ls lists them"
                                                   : ", did you mean " + near + "?")};
}

std::vector<std::string> RecipeKeyPaths() {
  std::vector<std::string> paths;
  for (const ReferenceKey& key : RecipeKeys()) {
    const bool in_list = key.path.find("[]") != std::string::npos;
    if (!IsSection(key) && key.refusal.empty() && !in_list) paths.push_back(key.path);
  }
  return paths;
}

Result<std::string> ExplainRecipeKey(const std::string& key) {
  const std::vector<ReferenceKey> keys = RecipeKeys();
  if (key.empty()) return SectionList(keys);
  const auto exact = std::ranges::find(keys, key, &ReferenceKey::path);
  if (exact != keys.end()) {
    const bool has_keys = std::ranges::any_of(
        keys, [&](const ReferenceKey& one) { return ParentOf(one.path) == key + "[]"; });
    if (IsSection(*exact)) return SectionText(keys, key);
    return Explanation(*exact) + (has_keys ? "\n" + SectionText(keys, key + "[]") : "");
  }
  std::string text;
  for (const ReferenceKey& one : keys) {
    if (LastPart(one.path) != key) continue;
    text += IsSection(one) ? SectionText(keys, one.path) : Explanation(one);
  }
  if (text.empty()) return UnknownKey(keys, key);
  return text;
}

std::string RecipeSchemaText() { return RecipeSchema(); }

}  // namespace dslaunch

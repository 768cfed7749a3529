// Lists the built-in recipes, and explains the keys of a recipe.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace dslaunch {

struct BuiltInRecipe {
  std::string name;
  std::string path;
  std::string about;  // first clause of the recipe's first comment; empty without a comment
};

// Returns the recipes in the folders, sorted by name. Of two recipes with the same name, only the
// one in the earlier folder is listed.
std::vector<BuiltInRecipe> ListRecipes(const std::vector<std::string>& folders);

// Returns the recipes as a table.
std::string RecipeTable(const std::vector<BuiltInRecipe>& recipes);

// Returns a table of the models and data that a plugin's library contains. Reads the library
// without loading it. Returns kBadInput if the file is not a library, or contains neither.
Result<std::string> PluginTable(const std::string& path);

// Returns the text of the recipe `name`. Returns kUsage, with similar names, if no such recipe
// exists.
Result<std::string> RecipeText(const std::vector<BuiltInRecipe>& recipes, const std::string& name);

// Returns the paths of all keys, such as "run.steps", without the sections.
std::vector<std::string> RecipeKeyPaths();

// Returns the meaning and values of `key`: a path, a section with all its keys, or the last part of
// paths, such as "lr". An empty `key` returns the list of sections. Returns kUsage, with similar
// keys, if no key matches.
Result<std::string> ExplainRecipeKey(const std::string& key);

// Returns the JSON Schema of a recipe (trainer/config/key_reference.h).
std::string RecipeSchemaText();

}  // namespace dslaunch

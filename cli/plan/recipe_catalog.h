// The built-in recipes, and the meanings of a recipe's keys.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace dslaunch {

struct BuiltInRecipe {
  std::string name;
  std::string path;
  std::string about;  // the first clause of its first comment; often empty
};

// Returns the recipes in the folders, sorted by name. If two have the same name, the one in the
// earlier folder is listed.
std::vector<BuiltInRecipe> ListRecipes(const std::vector<std::string>& folders);

// Returns the recipes as a table.
std::string RecipeTable(const std::vector<BuiltInRecipe>& recipes);

// Returns a table of the models and data of a plugin's library, which is read but not loaded.
// kBadInput: the file is not a library, or has neither.
Result<std::string> PluginTable(const std::string& path);

// Returns the text of a recipe. kUsage, with similar names, if there is no such recipe.
Result<std::string> RecipeText(const std::vector<BuiltInRecipe>& recipes, const std::string& name);

// Returns all keys, such as "run.steps", without sections.
std::vector<std::string> RecipeKeyPaths();

// Returns the meaning and values of `key`: a path, a section with all its keys, or the last part of
// paths, such as "lr". Empty: the list of sections. kUsage, with similar keys, if there is none.
Result<std::string> ExplainRecipeKey(const std::string& key);

// JSON Schema of a recipe (trainer/config/key_reference.h).
std::string RecipeSchemaText();

}  // namespace dslaunch

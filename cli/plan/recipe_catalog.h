// The built-in recipes, and what the keys of a recipe mean.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace dslaunch {

struct BuiltInRecipe {
  std::string name;
  std::string path;
  std::string about;  // what its first comment says, a clause; often empty
};

// By name. Of two with one name the one in the earlier folder counts.
std::vector<BuiltInRecipe> ListRecipes(const std::vector<std::string>& folders);

// A table of them.
std::string RecipeTable(const std::vector<BuiltInRecipe>& recipes);

// A table of what a plugin's library has, which is read and not loaded. kBadInput: it is no
// library, or has nothing.
Result<std::string> PluginTable(const std::string& path);

// The text of a recipe. kUsage, with what is near, where there is no such recipe.
Result<std::string> RecipeText(const std::vector<BuiltInRecipe>& recipes, const std::string& name);

// "run.steps" and so on, sections left out.
std::vector<std::string> RecipeKeyPaths();

// What `key` means and takes: a path, a section with all its keys, or the last part of paths, such
// as "lr". Empty: the list of sections. kUsage, with what is near, where there is no such key.
Result<std::string> ExplainRecipeKey(const std::string& key);

// JSON Schema of a recipe (trainer/config/recipe_schema.h).
std::string RecipeSchemaText();

}  // namespace dslaunch

// Runs `dslaunch recipe ls | show | explain | schema`.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "cli/options/recipe_command.h"

namespace dslaunch {

// Runs the command and returns the exit code. `recipe_folders` are the folders of the built-in
// recipes.
Result<int> RunRecipeCommand(const RecipeCommand& command,
                             const std::vector<std::string>& recipe_folders);

}  // namespace dslaunch

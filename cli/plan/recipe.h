// Recipes: model, data, run length and engine of one training. YAML or JSON here, JSON on the way
// to the workers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/plan/key_origins.h"
#include "cli/plan/yaml_document.h"
#include "cli/request/launch_options.h"

namespace dslaunch {

inline constexpr char kDefaultRecipeFile[] = "dslaunch.yaml";
inline constexpr char kDefaultRecipe[] = "fashion_mnist";  // built in
inline constexpr char kLaunchSection[] =
    "launch";  // launch options (cli/options/launch_file.h), not recipe
inline constexpr size_t kMaxRecipeJsonBytes =
    120u << 10;  // it travels in one environment variable (128 KiB)

struct RecipeRequest {
  TrainOptions options;
  std::string cwd;                       // absolute; relative paths start here
  std::vector<std::string> recipe_dirs;  // where built-in recipes are: NAME.yaml
};

struct LoadedRecipe {
  std::string json;    // one line
  std::string source;  // the file it came from
  // Choices that were made for the user: which recipe if none was named, that --steps leaves the
  // schedule's length as it is, what was taken for "auto" in the engine's file.
  std::vector<std::string> notices;
  KeyOrigins origins;
};

// Reads the recipe file and applies the options to it:
//   no recipe named   ./dslaunch.yaml if there is one, else the built-in fashion_mnist
//   a name            that file, else the built-in recipe of that name
//   a file that was not named (NamesRecipeFile) must not be another user's, nor load a library
//   "auto"            in the engine's file becomes what the recipe's own section has there
//   engine: FILE      becomes what is in that file of DeepSpeed's JSON, which may have comments;
//                     a relative path starts at the recipe's folder. --deepspeed_config FILE takes
//                     the place of the section too. The file's name goes to engine_source.
//   --plugin FILE     model.type plugin and model.path; of another model only params remain
//   --steps, --epochs set run.steps or run.epochs and remove the other
//                     An option and a --set of one key, or of the run's length, are kUsage.
//   the rest          sets one key each (cli/plan/recipe.cc has the table); paths are made
//   absolute,
//                     but data.path; --set comes last
// Only the shape is checked here. Errors are kBadInput with file:line:column, or kUsage for a wrong
// option.
Result<LoadedRecipe> LoadRecipe(const RecipeRequest& request);

// Whether a recipe's name on the command line can only be a file's: a path, or with a suffix. Any
// other may be the name of a built-in recipe.
bool NamesRecipeFile(std::string_view recipe);

// The same of a recipe's text, which stood in the file `source`. Reads no file but the engine's.
Result<LoadedRecipe> ReadRecipe(std::string_view text, const std::string& source,
                                const TrainOptions& options, const std::string& cwd);

// Whether the trainer would take it, as far as that can be known without a node (CheckRecipe, with
// its `ranks`). Errors name the line or the option that gave the key.
Result<void> CheckContent(const LoadedRecipe& recipe, int64_t ranks);

// Whether the top level is a map with known keys only, `launch` among them. Errors are kBadInput.
Result<void> CheckSections(const nlohmann::json& document, const std::string& source);

}  // namespace dslaunch

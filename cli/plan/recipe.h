// Loads recipes, which define model, data, run length and engine of a training. Files are YAML or
// JSON; workers get JSON.
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
inline constexpr char kDefaultRecipe[] = "fashion_mnist";  // name of a built-in recipe
// Section with launch options (launch_file.h), not part of the recipe.
inline constexpr char kLaunchSection[] = "launch";
// Limited because one environment variable (128 KiB) carries the recipe.
inline constexpr size_t kMaxRecipeJsonBytes = 120u << 10;

struct RecipeRequest {
  TrainOptions options;
  std::string cwd;                       // absolute path where relative paths start
  std::vector<std::string> recipe_dirs;  // folders of the built-in recipes NAME.yaml
};

struct LoadedRecipe {
  std::string json;    // recipe as one line of JSON
  std::string source;  // path of the recipe's file
  // Choices that were made for the user: the recipe if none was named, a schedule length that
  // --steps does not change, and the values of "auto" in the engine's file.
  std::vector<std::string> notices;
  KeyOrigins origins;
};

// Reads the recipe file and applies the options:
//   no recipe named   uses ./dslaunch.yaml if it exists, else the built-in fashion_mnist
//   a name            uses that file if it exists, else the built-in recipe of that name
//   unnamed files     are refused if another user may have written them, or if they load a library:
//                     ./dslaunch.yaml, and a file that a name without "/" and "." has found
//   "auto"            in the engine's file is replaced by the value in the recipe's own section
//   engine: FILE      is replaced by the content of that file, DeepSpeed's JSON with comments
//                     allowed; a relative path starts at the recipe's folder. --deepspeed_config
//                     FILE replaces the section too. The file's name goes to engine_source.
//   --plugin FILE     sets model.type plugin and model.path, and keeps only params of the model
//   --steps, --epochs set run.steps or run.epochs and remove the other key
//   other options     set one key each (cli/plan/recipe.cc has the table); all paths except
//                     data.path become absolute; --set is applied last
// Checks only the structure of the recipe. Errors are kBadInput with file:line:column, or kUsage
// for a wrong option, or if an option and --set both set one key or the run's length.
Result<LoadedRecipe> LoadRecipe(const RecipeRequest& request);

// Returns the recipe's run.memory_checkpoint; 0 if the recipe does not train. Precondition:
// CheckContent() accepted the recipe.
int64_t MemoryCheckpointOf(const LoadedRecipe& recipe);

// Returns whether a recipe's name on the command line can only mean a file, because it is a path or
// has a suffix. Any other name may also be a built-in recipe.
bool NamesRecipeFile(std::string_view recipe);

// Applies the options to `text`, the content of a recipe's file, as LoadRecipe() does, with the
// same errors. `source` is the path of that file, for messages and for paths relative to its
// folder. Reads no file except the engine's configuration, if the recipe or the options name one.
Result<LoadedRecipe> ReadRecipe(std::string_view text, const std::string& source,
                                const TrainOptions& options, const std::string& cwd);

// Checks whether the trainer would accept the recipe (CheckRecipe), as far as that is known without
// a node. `ranks` is the number of all ranks, 0 if unknown; `ranks_of_nodes` has the number on each
// node, and is empty if unknown. Errors name the line or the option that supplied the key.
Result<void> CheckContent(const LoadedRecipe& recipe, int64_t ranks,
                          const std::vector<int>& ranks_of_nodes = {});

// Checks that the top level is a map whose keys are all known; `launch` is a known key. Errors are
// kBadInput.
Result<void> CheckSections(const nlohmann::json& document, const std::string& source);

}  // namespace dslaunch

// Parses the command line of `dslaunch recipe ls | show | explain | schema`.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace dslaunch {

struct RecipeCommand {
  enum class Kind { kHelp, kList, kShow, kExplain, kSchema };
  Kind kind = Kind::kHelp;
  std::string text = {};  // text to print on stdout, for kHelp
  // For kList: path of the plugin whose parts are listed; empty to list recipes.
  std::string plugin = {};
  std::string name = {};  // name of the recipe, for kShow
  std::string key = {};   // key to explain, for kExplain; empty to list the sections
};

// Parses the command line, whose first word in `words` is "recipe". Errors are kUsage, one line
// with a hint.
Result<RecipeCommand> ParseRecipeCommand(const std::vector<std::string>& words);

}  // namespace dslaunch

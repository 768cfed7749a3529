// Parses the command line of `dslaunch recipe ls | show | explain | schema`.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace dslaunch {

struct RecipeCommand {
  enum class Kind { kHelp, kList, kShow, kExplain, kSchema };
  Kind kind = Kind::kHelp;
  std::string text = {};  // for kHelp: text to print on stdout
  // For kList: path of the plugin whose parts are listed; empty to list recipes.
  std::string plugin = {};
  std::string name = {};  // for kShow: name of the recipe
  std::string key = {};   // for kExplain: key to explain; empty to list the sections
};

// Parses the command line, whose first word in `words` is "recipe". Errors are kUsage, one line
// with a hint.
Result<RecipeCommand> ParseRecipeCommand(const std::vector<std::string>& words);

}  // namespace dslaunch

// The command line of what is said about recipes: dslaunch recipe ls | show | explain | schema.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace dslaunch {

struct RecipeCommand {
  enum class Kind { kHelp, kList, kShow, kExplain, kSchema };
  Kind kind = Kind::kHelp;
  std::string text = {};    // for kHelp: what to print on stdout
  std::string plugin = {};  // of kList: whose parts to list, a path; empty: list recipes
  std::string name = {};    // of kShow
  std::string key = {};     // of kExplain; empty: the sections
};

// `words` begins with "recipe". Errors are kUsage, one line with a hint.
Result<RecipeCommand> ParseRecipeCommand(const std::vector<std::string>& words);

}  // namespace dslaunch

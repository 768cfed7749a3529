// The JSON Schema of recipes, for editors that check and complete.
#pragma once

#include <string>

namespace dslaunch {

// Returns the JSON Schema (draft 2020-12) of all RecipeKeys with types, ranges, choices and
// meanings. It accepts every valid recipe and some others, because only the reader knows which keys
// exclude each other. Indented, with a newline at the end.
std::string RecipeSchema();

}  // namespace dslaunch

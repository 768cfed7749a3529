// A recipe as JSON Schema, for editors that check and complete while one types.
#pragma once

#include <string>

namespace dslaunch {

// JSON Schema (draft 2020-12) of every key that RecipeKeys has: types, ranges, choices, meanings.
// It is as strict as a schema can be without being wrong: which keys go together only the reader
// of recipes knows. Indented, with a newline at the end.
std::string RecipeSchema();

}  // namespace dslaunch

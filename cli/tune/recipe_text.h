// Formats a recipe as YAML. All functions are pure.
#pragma once

#include <string>

namespace dslaunch {

// Returns a recipe, given as JSON, as a YAML file that begins with `comment`, which is one line.
// The sections are in the order model, data, run, engine, then all others. ParseYaml reads the same
// values from the file.
std::string RecipeYaml(const std::string& recipe_json, const std::string& comment);

}  // namespace dslaunch

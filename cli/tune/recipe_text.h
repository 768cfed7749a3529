// A recipe as YAML. Pure.
#pragma once

#include <string>

namespace dslaunch {

// Returns a recipe, given as JSON, as a YAML file that begins with `comment`, one line. The
// sections are in the order model, data, run, engine, and others after them. ParseYaml reads the
// same values.
std::string RecipeYaml(const std::string& recipe_json, const std::string& comment);

}  // namespace dslaunch

// Lists every key of a recipe and of an engine configuration, as the readers read them.
// docs/reference/recipe.md is made from it.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

struct ReferenceKey {
  std::string path;                // "run.epochs", "engine.fp16.enabled"
  std::string value;               // "whole number, at least 1"; empty for a section
  std::string refusal;             // why no other value is accepted; empty: supported
  std::vector<std::string> types;  // types of the section that have the key; empty: all types
  std::string meaning;             // description with default; empty if the key is refused
  std::vector<std::string> schemas = {};  // the value as JSON Schema, which must match one of these
};

// Returns the keys by reading a recipe of each kind, in the order of reading. Sections precede
// their keys.
std::vector<ReferenceKey> RecipeKeys();

// Returns the JSON Schema (draft 2020-12) of all RecipeKeys with types, ranges, choices and
// meanings. It accepts every valid recipe and some others, because only the reader knows which keys
// exclude each other. Indented, with a newline at the end.
std::string RecipeSchema();

}  // namespace dslaunch

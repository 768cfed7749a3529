// Lists every key of a recipe and of an engine configuration, as the readers read them.
// docs/reference/recipe.md is generated from the list.
#pragma once

#include <string>
#include <vector>

namespace dslaunch {

struct ReferenceKey {
  std::string path;     // path of the key, such as "run.epochs" or "engine.fp16.enabled"
  std::string value;    // accepted values, such as "whole number, at least 1"; empty for a section
  std::string refusal;  // reason why no other value is accepted; empty if the key is supported
  // Types of the section that have the key; empty if all types have it.
  std::vector<std::string> types;
  std::string meaning;  // description of the key and its default; empty if the key is refused
  std::vector<std::string> schemas = {};  // JSON Schemas, one of which the value must match
};

// Returns all keys in the order of reading; sections precede their keys. Reads a recipe of each
// kind to find them.
std::vector<ReferenceKey> RecipeKeys();

// Returns the JSON Schema (draft 2020-12) of all RecipeKeys with types, ranges, choices and
// meanings. It accepts every valid recipe and some invalid recipes, because only the reader detects
// keys that exclude each other. The text is indented and ends with a newline.
std::string RecipeSchema();

}  // namespace dslaunch

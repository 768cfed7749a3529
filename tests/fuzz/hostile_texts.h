// The edges of the launcher half that take what users and their machines write. Each function
// throws std::logic_error where a property is broken, and returns whether the bytes were accepted.
#pragma once

#include <string>

namespace dslaunch {

#define EDGE(function, changes) bool function(const std::string& bytes);
#include "tests/fuzz/hostile_texts.def"
#undef EDGE

}  // namespace dslaunch

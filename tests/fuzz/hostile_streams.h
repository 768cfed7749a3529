// Declares tests of the launcher's functions that read the output of other programs in pieces. Each
// function throws std::logic_error if a property is violated, and returns whether the bytes were
// accepted.
#pragma once

#include <string>

namespace dslaunch {

#define EDGE(function, changes) bool function(const std::string& bytes);
#include "tests/fuzz/hostile_streams.def"
#undef EDGE

}  // namespace dslaunch

// The trainer's readers of files that are not trusted, each with what must hold whatever the bytes
// are: it accepts or throws TrainError kBadInput, and what it accepts holds together. Each returns
// whether the bytes were accepted, and throws std::logic_error where something does not hold.
#pragma once

#include <string>

namespace dslaunch {

#define EDGE(function, changes) bool function(const std::string& bytes);
#include "tests/fuzz/hostile_readers.def"
#undef EDGE

}  // namespace dslaunch

// Declares tests of the trainer's readers of untrusted files. A reader accepts any bytes or throws
// TrainError kBadInput, and accepted content is consistent. Each function returns whether the bytes
// were accepted, and throws std::logic_error if a property is violated.
#pragma once

#include <string>

namespace dslaunch {

#define EDGE(function, changes) bool function(const std::string& bytes);
#include "tests/fuzz/hostile_readers.def"
#undef EDGE

}  // namespace dslaunch

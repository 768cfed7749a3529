// Declares handlers of messages that come from other processes of a job. Each function throws
// std::logic_error if a property is violated, and returns whether the bytes were accepted.
#pragma once

#include <string>

namespace dslaunch {

#define EDGE(function, changes) bool function(const std::string& bytes);
#include "tests/fuzz/hostile_messages.def"
#undef EDGE

}  // namespace dslaunch

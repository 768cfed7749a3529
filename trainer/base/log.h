// Lines for people. Every one that the trainer writes goes through here.
#pragma once

#include <string>

namespace dslaunch {

// One line on stdout, flushed.
void PrintLine(const std::string& line);

// Text that ends its lines itself, on stdout.
void PrintText(const std::string& text);

// One line on stderr, after what stdout has so far.
void PrintError(const std::string& line);

}  // namespace dslaunch

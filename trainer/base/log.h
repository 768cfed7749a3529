// Prints lines for people; all output of the trainer goes through these functions.
#pragma once

#include <string>

namespace dslaunch {

// Prints a line on stdout and flushes.
void PrintLine(const std::string& line);

// Prints text that includes its line ends on stdout.
void PrintText(const std::string& text);

// Flushes stdout, then prints a line on stderr.
void PrintError(const std::string& line);

}  // namespace dslaunch

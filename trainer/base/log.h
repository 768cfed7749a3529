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

// Shows `text` in the current line of the terminal that stderr is, in place of the line's content.
void ShowInLine(const std::string& text);

}  // namespace dslaunch

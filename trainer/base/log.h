// Prints text for the user. The trainer prints only through these functions.
#pragma once

#include <string>

namespace dslaunch {

// Prints a line on stdout and flushes stdout.
void PrintLine(const std::string& line);

// Prints `text`, which must include its line ends, on stdout without flushing.
void PrintText(const std::string& text);

// Flushes stdout, then prints a line on stderr.
void PrintError(const std::string& line);

// Replaces the content of the terminal's current line by `text`. Precondition: stderr is a
// terminal.
void ShowInLine(const std::string& text);

}  // namespace dslaunch

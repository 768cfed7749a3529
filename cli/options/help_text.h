// Formats the help of dslaunch and of its commands from the table of options. All functions are
// pure.
#pragma once

#include <string>
#include <string_view>

#include "cli/options/option_table.h"

namespace dslaunch {

std::string HelpText();     // returns the help with the most common options
std::string HelpAllText();  // returns the help with all options except those of HelpLaunchersText()
// Returns the help with the options that exist only for command lines of other launchers.
std::string HelpLaunchersText();

// Returns the help of `family`: a command, such as "train", or all commands that share a first
// word, such as "hostfile".
std::string CommandHelpText(std::string_view family);

// Returns the help of a single command.
std::string CommandHelpText(const CommandSpec& command);

std::string ManPage();  // returns the manual page dslaunch(1) in roff

}  // namespace dslaunch

// The help of dslaunch and of its commands, made from the table of options. Pure.
#pragma once

#include <string>
#include <string_view>

#include "cli/options/option_table.h"

namespace dslaunch {

std::string HelpText();           // the most common options
std::string HelpAllText();        // all options except those of HelpLaunchersText()
std::string HelpLaunchersText();  // options that exist only for command lines of other launchers

// Returns the help of a command, or of the family of commands that share the first word ("train",
// "logs", "hostfile").
std::string CommandHelpText(std::string_view family);
std::string CommandHelpText(const CommandSpec& command);

std::string ManPage();  // dslaunch(1)

}  // namespace dslaunch

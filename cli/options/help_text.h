// The help of dslaunch and of its commands, made from the table of options. Pure.
#pragma once

#include <string>
#include <string_view>

#include "cli/options/option_table.h"

namespace dslaunch {

std::string HelpText();           // the options that are needed most
std::string HelpAllText();        // all of them but those that follow
std::string HelpLaunchersText();  // those that are there for other launchers' command lines only

// Of a command, or of all that share their first word: "train", "logs", "hostfile".
std::string CommandHelpText(std::string_view family);
std::string CommandHelpText(const CommandSpec& command);

}  // namespace dslaunch

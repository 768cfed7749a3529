#include "cli/options/hostfile_command.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cli/options/command_parser.h"
#include "cli/options/help_text.h"

namespace dslaunch {

Result<HostfileCommand> ParseHostfileCommand(const std::vector<std::string>& words) {
  DSL_TRY_ASSIGN(const CommandSpec* command, FindCommand("hostfile", words));
  HostfileCommand help;
  help.text = command == nullptr ? CommandHelpText("hostfile") : CommandHelpText(*command);
  if (command == nullptr) return help;
  DSL_TRY_ASSIGN(std::optional<ParsedFlags> flags, ParseCommand(*command, words, 2));
  if (!flags) return help;
  HostfileCommand& hostfile = flags->hostfile;
  if (ActionOf(*command) == "check") {
    hostfile.kind = HostfileCommand::Kind::kCheck;
    return std::move(hostfile);
  }
  hostfile.kind = HostfileCommand::Kind::kWrite;
  const auto given = [&](const char* name) { return flags->given.contains(name) ? 1 : 0; };
  if (given("--hosts") + given("--slurm") + given("--ssh_config") != 1) {
    return UsageError(
        "hostfile write: give the nodes in exactly one way: --hosts a,b,c, --slurm or --ssh_config",
        "dslaunch hostfile --help");
  }
  return std::move(hostfile);
}

}  // namespace dslaunch

#include "cli/options/checkpoint_command.h"

#include <optional>
#include <utility>

#include "cli/options/command_parser.h"
#include "cli/options/help_text.h"

namespace dslaunch {

Result<CheckpointCommand> ParseCheckpointCommand(const std::vector<std::string>& words) {
  DSL_TRY_ASSIGN(const CommandSpec* command, FindCommand("checkpoint", words));
  CheckpointCommand help;
  help.help = command == nullptr ? CommandHelpText("checkpoint") : CommandHelpText(*command);
  if (command == nullptr) return help;
  DSL_TRY_ASSIGN(std::optional<ParsedFlags> flags, ParseCommand(*command, words, 2));
  if (!flags) return help;
  CheckpointCommand& checkpoint = flags->checkpoint;
  checkpoint.words = {std::string(ActionOf(*command)), checkpoint.path};
  if (!checkpoint.out.empty()) checkpoint.words.push_back(checkpoint.out);
  if (checkpoint.json) checkpoint.words.emplace_back("--json");
  if (!checkpoint.dtype.empty()) {
    checkpoint.words.insert(checkpoint.words.end(), {"--dtype", checkpoint.dtype});
  }
  if (checkpoint.force) checkpoint.words.emplace_back("--force");
  return std::move(checkpoint);
}

}  // namespace dslaunch

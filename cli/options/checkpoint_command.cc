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
  const std::pair<const char*, const std::string&> options[] = {{"--to", checkpoint.to},
                                                                {"--dtype", checkpoint.dtype},
                                                                {"--prefix", checkpoint.prefix},
                                                                {"--key", checkpoint.key}};
  for (const auto& [name, value] : options) {
    if (!value.empty()) checkpoint.words.insert(checkpoint.words.end(), {name, value});
  }
  if (checkpoint.force) checkpoint.words.emplace_back("--force");
  return std::move(checkpoint);
}

}  // namespace dslaunch

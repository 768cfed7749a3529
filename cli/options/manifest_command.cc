#include "cli/options/manifest_command.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "cli/options/command_parser.h"
#include "cli/options/help_text.h"

namespace dslaunch {
namespace {

constexpr char kHelp[] = "dslaunch manifest kubernetes --help";

}  // namespace

Result<ManifestCommand> ParseManifestCommand(const std::vector<std::string>& words) {
  const auto split = std::ranges::find(words, "--");
  const std::vector<std::string> own(words.begin(), split);
  DSL_TRY_ASSIGN(const CommandSpec* command, FindCommand("manifest", own));
  ManifestCommand help;
  help.help = command == nullptr ? CommandHelpText("manifest") : CommandHelpText(*command);
  if (command == nullptr) return help;
  DSL_TRY_ASSIGN(std::optional<ParsedFlags> flags, ParseCommand(*command, own, 2));
  if (!flags) return help;
  KubernetesJob& job = flags->manifest.job;
  if (split != words.end()) job.command.assign(split + 1, words.end());
  if (job.num_nodes == 0) return UsageError("how many nodes? Add --num_nodes N", kHelp);
  if (job.image.empty())
    return UsageError("which image? Add --image IMAGE, which has dslaunch", kHelp);
  if (job.command.empty()) {
    return UsageError("what is to run? Add it after --, as in: -- train recipe.yaml", kHelp);
  }
  return std::move(flags->manifest);
}

}  // namespace dslaunch

#include "cli/options/recipe_command.h"

#include <optional>
#include <string_view>
#include <utility>

#include "cli/options/command_parser.h"
#include "cli/options/help_text.h"

namespace dslaunch {

Result<RecipeCommand> ParseRecipeCommand(const std::vector<std::string>& words) {
  using Kind = RecipeCommand::Kind;
  DSL_TRY_ASSIGN(const CommandSpec* command, FindCommand("recipe", words));
  RecipeCommand help;
  help.text = command == nullptr ? CommandHelpText("recipe") : CommandHelpText(*command);
  if (command == nullptr) return help;
  DSL_TRY_ASSIGN(std::optional<ParsedFlags> flags, ParseCommand(*command, words, 2));
  if (!flags) return help;
  const std::string_view action = ActionOf(*command);
  flags->recipe.kind = action == "ls"        ? Kind::kList
                       : action == "show"    ? Kind::kShow
                       : action == "explain" ? Kind::kExplain
                                             : Kind::kSchema;
  return std::move(flags->recipe);
}

}  // namespace dslaunch

#include "cli/commands/recipe_commands.h"

#include "cli/output/print_text.h"
#include "cli/plan/recipe_catalog.h"

namespace dslaunch {
namespace {

Result<std::string> TextOf(const RecipeCommand& command,
                           const std::vector<std::string>& recipe_folders) {
  switch (command.kind) {
    case RecipeCommand::Kind::kHelp:
      return command.text;
    case RecipeCommand::Kind::kList:
      return command.plugin.empty() ? RecipeTable(ListRecipes(recipe_folders))
                                    : PluginTable(command.plugin);
    case RecipeCommand::Kind::kShow:
      return RecipeText(ListRecipes(recipe_folders), command.name);
    case RecipeCommand::Kind::kExplain:
      return ExplainRecipeKey(command.key);
    case RecipeCommand::Kind::kSchema:
      return RecipeSchemaText();
  }
  return std::string();
}

}  // namespace

Result<int> RunRecipeCommand(const RecipeCommand& command,
                             const std::vector<std::string>& recipe_folders) {
  DSL_TRY_ASSIGN(const std::string text, TextOf(command, recipe_folders));
  DSL_TRY(PrintText(text));
  return ToInt(ExitCode::kOk);
}

}  // namespace dslaunch

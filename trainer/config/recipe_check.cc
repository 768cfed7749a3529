#include "trainer/config/recipe_check.h"

#include "trainer/config/config_error.h"
#include "trainer/config/recipe.h"

namespace dslaunch {

// Converts the trainer's exceptions, because the launcher uses none.
std::optional<RecipeProblem> CheckRecipe(const std::string& json_text, int64_t ranks) {
  try {
    (void)ParseRecipe(json_text, "", ranks);
    return std::nullopt;
  } catch (const ConfigError& error) {
    return RecipeProblem{error.source(), error.key(), error.message()};
  } catch (const TrainError& error) {
    return RecipeProblem{"", "", error.what()};
  }
}

}  // namespace dslaunch

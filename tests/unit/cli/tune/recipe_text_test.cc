#include "cli/tune/recipe_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/plan/yaml_document.h"

namespace dslaunch::recipe_text_test {
namespace {

TEST(RecipeTextTest, ReadsBackAsTheSameValues) {
  const nlohmann::json recipe = {
      {"engine",
       {{"optimizer", {{"params", {{"lr", 1e-5}, {"betas", {0.9, 0.95}}, {"eps", 1e-08}}}}},
        {"empty", nlohmann::json::object()},
        {"large", 9007199254740993}}},
      {"run",
       {{"prompt", "Once: \"upon\" # a\ntime \\ \u00e9\t"}, {"none", nullptr}, {"on", true}}},
      {"data", {{"sources", {{{"path", "a b"}, {"weight", 3}}}}, {"no", "yes"}, {"12", "0x1"}}},
      {"model", {{"type", "mlp"}, {"a.b", "null"}, {"", "~"}, {"x y", "- a"}}}};
  const std::string text = RecipeYaml(recipe.dump(), "found\nby a test");
  const Result<nlohmann::json> read = ParseYaml(text, "text");
  ASSERT_TRUE(read.ok()) << read.error().message << "\n" << text;
  EXPECT_EQ(*read, recipe) << text;
}

TEST(RecipeTextTest, SectionsAreInUsualOrder) {
  EXPECT_EQ(RecipeYaml(R"({"engine":{"a":1},"launch":{"b":[1,2]},"model":{"c":{"d":"e"}}})", "why"),
            "# why\n"
            "model:\n"
            "  c:\n"
            "    d: \"e\"\n"
            "engine:\n"
            "  a: 1\n"
            "launch:\n"
            "  b: [1,2]\n");
}

}  // namespace
}  // namespace dslaunch::recipe_text_test

#include "trainer/resume/match_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::match_names_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

const std::vector<std::string> kModel = {"transformer.wte.weight", "transformer.h.0.w"};

// Returns how files name the tensors of GPT-2.
WeightNames Gpt2Names() {
  return {.prefix = "transformer.",
          .copies = {{"lm_head.weight", {"transformer.wte.weight", "differs"}}},
          .ignored_endings = {".attn.bias"}};
}

TEST(MatchNamesTest, FindsTheModelsOwnNames) {
  const MatchedNames matched = MatchNames(kModel, kModel, {}, Gpt2Names());
  EXPECT_THAT(matched.in_checkpoint,
              ElementsAre(Pair("transformer.h.0.w", "transformer.h.0.w"),
                          Pair("transformer.wte.weight", "transformer.wte.weight")));
  EXPECT_THAT(matched.missing, IsEmpty());
  EXPECT_THAT(matched.extra, IsEmpty());
  EXPECT_EQ(DescribeDropped(matched), "");
}

TEST(MatchNamesTest, DropsPrefixesAndWrappers) {
  const MatchedNames matched =
      MatchNames(kModel,
                 {"module.transformer.wte.weight", "module.transformer.h.0._orig_mod.w",
                  "module.lm_head.weight", "module.transformer.h.0.attn.bias"},
                 {}, Gpt2Names());
  EXPECT_THAT(matched.in_checkpoint,
              ElementsAre(Pair("transformer.h.0.w", "module.transformer.h.0._orig_mod.w"),
                          Pair("transformer.wte.weight", "module.transformer.wte.weight")));
  EXPECT_THAT(matched.copies, ElementsAre(Pair("module.lm_head.weight", "lm_head.weight")));
  EXPECT_THAT(matched.missing, IsEmpty());
  EXPECT_THAT(matched.extra, IsEmpty());
  EXPECT_EQ(DescribeDropped(matched), R"(names are read without "module.", "_orig_mod.")");
}

TEST(MatchNamesTest, FindsNamesWithoutTheFamilysPrefix) {
  const MatchedNames matched =
      MatchNames(kModel, {"model.wte.weight", "model.h.0.w"}, {}, Gpt2Names());
  EXPECT_THAT(matched.in_checkpoint,
              ElementsAre(Pair("transformer.h.0.w", "model.h.0.w"),
                          Pair("transformer.wte.weight", "model.wte.weight")));
  EXPECT_EQ(matched.prefix, "model.");
}

TEST(MatchNamesTest, FindsTensorByItsAlias) {
  const MatchedNames matched =
      MatchNames(kModel, {"module.lm_head.weight", "module.transformer.h.0.w"},
                 {{"module.transformer.wte.weight", "module.lm_head.weight"}}, Gpt2Names());
  EXPECT_EQ(matched.in_checkpoint.at("transformer.wte.weight"), "module.lm_head.weight");
  EXPECT_THAT(matched.extra, IsEmpty());
  EXPECT_THAT(matched.copies, IsEmpty());
}

TEST(MatchNamesTest, ListsTensorsThatOneSideLacks) {
  const MatchedNames matched = MatchNames(
      kModel, {"transformer.wte.weight", "other", "a.w", "a._orig_mod.w"}, {}, Gpt2Names());
  EXPECT_THAT(matched.missing, ElementsAre("transformer.h.0.w"));
  EXPECT_THAT(matched.extra, ElementsAre("a._orig_mod.w", "a.w", "other"));
}

}  // namespace
}  // namespace dslaunch::match_names_test

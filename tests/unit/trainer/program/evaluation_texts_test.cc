#include "trainer/program/evaluation_texts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "trainer/base/train_error.h"

namespace dslaunch::evaluation_texts_test {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::Pair;

EvaluationTexts Read(const nlohmann::json& object, int64_t positions = 8) {
  EvaluationTexts texts;
  AddEvaluationText(object, "f:1", TextCodec(), /*vocab_size=*/256, positions, texts);
  return texts;
}

TEST(RollingWindowsTest, ScoresEachTokenOnceWithFullContext) {
  const std::vector<ScoredTokens> windows = RollingWindows({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 77, 4);
  ASSERT_EQ(windows.size(), 3);
  EXPECT_THAT(windows[0].tokens, ElementsAre(77, 0, 1, 2, 3));
  EXPECT_THAT(windows[1].tokens, ElementsAre(3, 4, 5, 6, 7));
  EXPECT_THAT(windows[2].tokens, ElementsAre(5, 6, 7, 8, 9));
  EXPECT_EQ(windows[0].scored, 4);
  EXPECT_EQ(windows[1].scored, 4);
  EXPECT_EQ(windows[2].scored, 2);
  EXPECT_TRUE(RollingWindows({}, 77, 4).empty());
}

TEST(CountWordsTest, CountsLikePython) {
  EXPECT_EQ(CountWords(""), 1);
  EXPECT_EQ(CountWords("one"), 1);
  EXPECT_EQ(CountWords(" two\t\n"), 3) << "Python's re.split has empty words at the ends";
  EXPECT_EQ(CountWords("a\u3000b\u00A0c\x1c"
                       "d\u200be"),
            4);
}

TEST(EvaluationTextsTest, MovesSpacesOfQueryToChoice) {
  const EvaluationTexts texts =
      Read({{"query", "ab  "}, {"choices", {"c", "\u00e9"}}, {"gold", 1}});
  ASSERT_EQ(texts.sequences.size(), 2);
  EXPECT_THAT(texts.sequences[0].tokens, ElementsAre('a', 'b', ' ', ' ', ' ', 'c'));
  EXPECT_EQ(texts.sequences[0].scored, 4);
  EXPECT_THAT(texts.questions[0].characters, ElementsAre(1, 1));
  EXPECT_THAT(texts.questions[0].bytes, ElementsAre(1, 2));
}

TEST(EvaluationTextsTest, CutsBeginningOfLongQuery) {
  const EvaluationTexts texts =
      Read({{"query", "abcdefgh"}, {"choices", {"ij"}}, {"gold", 0}}, /*positions=*/5);
  EXPECT_THAT(texts.sequences[0].tokens, ElementsAre('f', 'g', 'h', ' ', 'i', 'j'));
}

TEST(EvaluationTextsTest, ResultsCountQuestionsAndWeightDocuments) {
  EvaluationTexts texts;
  // The second choice is more likely if normalized by bytes or by characters.
  texts.questions = {{.first = 0, .characters = {1, 4}, .bytes = {1, 4}, .gold = 1},
                     {.first = 2, .characters = {2, 3}, .bytes = {4, 3}, .gold = 0}};
  texts.documents = {{.first = 4, .count = 2, .words = 3, .bytes = 10, .tokens = 5},
                     {.first = 6, .count = 1, .words = 1, .bytes = 6, .tokens = 3}};
  const EvaluationResults results = ResultsOfTexts(texts, {-2, -3, -4, -5, -1, -2, -5});
  EXPECT_THAT(results, ElementsAre(Pair("acc", 0.5), Pair("acc_norm", 0.5), Pair("acc_bytes", 1),
                                   Pair("questions", 2), Pair("nll", 8), Pair("tokens", 8),
                                   Pair("documents", 2), Pair("perplexity", std::exp(1.0)),
                                   Pair("word_perplexity", std::exp(2.0)),
                                   Pair("byte_perplexity", std::exp(0.5)),
                                   Pair("bits_per_byte", testing::DoubleEq(0.5 / std::log(2.0)))));
  EXPECT_EQ(
      TextsLine("test", texts, results),
      "test acc 50.00% (1 of 2), acc_norm 50.00%, acc_bytes 100.00%; word_perplexity 7.38906, "
      "byte_perplexity 1.64872, bits_per_byte 0.721348, perplexity 2.71828 (nll 8.0000 of 8 "
      "tokens in 2 documents)");
}

TEST(EvaluationTextsTest, PrintsOneDocumentInSingular) {
  EvaluationTexts texts;
  texts.documents = {{.first = 0, .count = 1, .words = 1, .bytes = 4, .tokens = 2}};
  EXPECT_THAT(TextsLine("test", texts, ResultsOfTexts(texts, {-2})), EndsWith("in 1 document)"));
}

TEST(EvaluationTextsTest, RefusesMalformedQuestions) {
  EXPECT_THROW(Read({{"other", "a"}}), TrainError);
  EXPECT_THROW(Read({{"query", "a"}, {"choices", {"b"}}, {"gold", 1}}), TrainError);
  EXPECT_THROW(Read({{"query", "a"}, {"choices", {"longer than eight"}}, {"gold", 0}}), TrainError);
}

}  // namespace
}  // namespace dslaunch::evaluation_texts_test

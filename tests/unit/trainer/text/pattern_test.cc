#include "trainer/text/pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/trainer/expect_refused.h"
#include "trainer/base/train_error.h"

namespace dslaunch::pattern_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<std::string> Matches(const std::string& pattern, const std::string& text) {
  std::vector<TextRange> ranges;
  Pattern(pattern).FindAll(text, ranges);
  std::vector<std::string> matches;
  for (const auto& [begin, end] : ranges) matches.push_back(text.substr(begin, end - begin));
  return matches;
}

TEST(PatternTest, TakesFirstAlternativeAndLongestRepetition) {
  EXPECT_THAT(Matches("a|ab", "ab"), ElementsAre("a"));
  EXPECT_THAT(Matches("ab|a", "abaa"), ElementsAre("ab", "a", "a"));
  EXPECT_THAT(Matches("a{2,3}", "aaaaa"), ElementsAre("aaa", "aa"));
  EXPECT_THAT(Matches("a{2}", "aaaaa"), ElementsAre("aa", "aa"));
  EXPECT_THAT(Matches("a{2,}b?", "aaaab a"), ElementsAre("aaaab"));
  EXPECT_THAT(Matches("(?:ab){1,2}", "ababab"), ElementsAre("abab", "ab"));
  EXPECT_THAT(Matches("(a|bc)+d", "abcad bcd"), ElementsAre("abcad", "bcd"));
}

TEST(PatternTest, BackTracksUnlessPossessive) {
  EXPECT_THAT(Matches("a*ab", "aaab"), ElementsAre("aaab"));
  EXPECT_THAT(Matches("é*éb", "éééb"), ElementsAre("éééb"));
  EXPECT_THAT(Matches("a*+ab", "aaab"), IsEmpty());
  EXPECT_THAT(Matches("(?:ab)*ab", "ababab"), ElementsAre("ababab"));
  EXPECT_THAT(Matches("(?:ab)*+ab", "ababab"), IsEmpty());
  EXPECT_THAT(Matches("x?+x", "xx"), ElementsAre("xx"));
  EXPECT_THAT(Matches(R"(\s+(?!\S)|\s+)", "   a "), ElementsAre("  ", " ", " "));
}

TEST(PatternTest, MatchesClassesByUnicodeProperty) {
  EXPECT_THAT(Matches(R"([^\s\p{L}\p{N}]+)", "a, ١!?é"), ElementsAre(",", "!?"));
  EXPECT_THAT(Matches(R"([\p{Lu}\p{Lt}][\p{Ll}]*)", "Straße Ǆ ǅx"),
              ElementsAre("Straße", "Ǆ", "ǅx"));
  EXPECT_THAT(Matches(R"(\P{L}+)", "a12b"), ElementsAre("12"));
  EXPECT_THAT(Matches(R"([^\S\n]+)", "a \n\tb"), ElementsAre(" ", "\t"));
  EXPECT_THAT(Matches(R"([一-龥a-c\-\]]+)", "漢a字-]x"), ElementsAre("漢a字-]"));
}

TEST(PatternTest, IgnoresCaseAsOnigurumaDoes) {
  EXPECT_THAT(Matches("(?i:'s|'ll|k)", "'S'ſ'Ll'LLkK\u212A"),
              ElementsAre("'S", "'ſ", "'Ll", "'LL", "k", "K", "\u212A"));
  EXPECT_THAT(Matches("(?i:a)b", "AbAB"), ElementsAre("Ab"));
}

TEST(PatternTest, NamesOffsetOfUnsupportedParts) {
  const std::pair<std::string, std::string> cases[] = {
      {"a.b", "has a . that is not supported here, at offset 1"},
      {"^a", "offset 0"},
      {"ab$", "offset 2"},
      {"a(?=b)", "a group that is not supported, at offset 1"},
      {"(?<!a)b", "offset 0"},
      {"a*?", "a quantifier after a quantifier that is not supported, at offset 2"},
      {"a{2}+", "offset 4"},
      {"a{,2}", "offset 2"},
      {"a{3,2}", "offset 6"},
      {"a{1001}", "of at most 1000, at offset"},
      {"\\d", "an escape that is not supported, at offset 0"},
      {"\\p{Han}", "a property that is not supported, at offset 0"},
      {"\\p{^L}", "offset 0"},
      {"[a-z&&[^b]]", "a class in a class, which is not supported, at offset 4"},
      {"[z-a]", "a range of characters without an order, at offset 4"},
      {"[a", "ends too early, at offset 2"},
      {"(a", "a ( without a ), at offset 2"},
      {"a)", "a ) without a (, at offset 1"},
      {"a\\", "offset 1"},
      {"a*", "matches the empty string"},
      {"", "matches the empty string"},
      {"(?:a?)*b", "repeats what may be empty"},
      {"(?i:st)", "has st in a group without case"},
      {"(?i:é)", "above ASCII"},
      {"a\xC3", "a byte that is not UTF-8, at offset 1"},
      {"((a{1000}){1000}b){1000}", "repeats groups too often"},
  };
  for (const auto& [pattern, problem] : cases) {
    SCOPED_TRACE(pattern);
    ExpectRefused([&] { Pattern{pattern}; }, ExitCode::kBadInput, HasSubstr(problem));
  }
  const std::string deep = std::string(40, '(') + "a" + std::string(40, ')');
  ExpectRefused([&] { Pattern{deep}; }, ExitCode::kBadInput,
                HasSubstr("has too many groups in groups"));
  ExpectRefused([] { Pattern{std::string(20000, 'a')}; }, ExitCode::kBadInput,
                HasSubstr("has more than 16384 bytes"));
}

TEST(PatternTest, StopsSearchThatTakesTooLong) {
  const Pattern pattern("(?:a|a)+b");
  std::vector<TextRange> matches;
  ExpectRefused([&] { pattern.FindAll(std::string(100, 'a'), matches); }, ExitCode::kBadInput,
                HasSubstr("needs too many steps"));
}

TEST(PatternTest, FindsMatchInTextOfMillionBytes) {
  const std::string spaces(1 << 20, ' ');
  EXPECT_THAT(Matches(R"(\s*[\r\n]+|\s+(?!\S)|\s+)", spaces + "x"),
              ElementsAre(spaces.substr(1), " "));
  EXPECT_THAT(Matches("(?:ab|cd)+", std::string(1 << 20, 'x') + "abcd"), ElementsAre("abcd"));
}

}  // namespace
}  // namespace dslaunch::pattern_test

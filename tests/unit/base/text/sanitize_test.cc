#include "base/text/sanitize.h"

#include <gtest/gtest.h>

#include <iterator>
#include <random>

#include "tests/support/forbidden_bytes.h"

namespace dslaunch::sanitize_test {
namespace {

TEST(SanitizeForTerminal, RemovesControlAndInvisibleCharacters) {
  const struct {
    std::string in, out;
  } cases[] = {
      {"plain\ttext ~", "plain\ttext ~"},
      {"\x1b[1;31mred\x1b[0m", "red"},
      {"\x1b[2J\x1b[Hcleared", "cleared"},
      {"\x1b]0;title\x07text", "text"},
      {"\x1b]52;c;cm0=\x1b\\text", "text"},
      {"\x1bPdcs\x1b\\text", "text"},
      {"\x1b(Btext\x1b"
       "7more\x1b"
       "c",
       "textmore"},
      {"cut \x1b[3", "cut "},
      {"cut \x1b", "cut "},
      {"cut \x1b]0;title", "cut "},
      {"\x1b]0;a\x1b[31mb", "b"},
      {"bell\x07 back\x08space\x7f", "bell backspace"},
      {std::string("nul\0x", 5), "nulx"},
      {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
      {"c1 \xc2\x9b"
       "31m",
       "c1 31m"},
      {"bad \xff\xfe.", "bad \xef\xbf\xbd\xef\xbf\xbd."},
      {"raw csi \x9b", "raw csi \xef\xbf\xbd"},
      {"cut \xe2\x82", "cut \xef\xbf\xbd\xef\xbf\xbd"},
      {"overlong \xc0\x9b", "overlong \xef\xbf\xbd\xef\xbf\xbd"},
      {"\x9b"
       "31mraw\x90q\x9c",
       "\xef\xbf\xbd"
       "31mraw\xef\xbf\xbdq\xef\xbf\xbd"},
      {"\xe2\x80\xae"
       "drowssap\xe2\x80\xac \xe2\x81\xa7x\xe2\x81\xa9 \xe2\x80\xa8y",
       "drowssap x y"},
      {"marks \xe2\x80\x8e\xe2\x80\x8f\xd8\x9c\xe2\x80\xaf", "marks \xe2\x80\xaf"},
      {"no\xe2\x80\x8b"
       "de\xe2\x80\x8c\xe2\x80\x8d\xef\xbb\xbf\xe2\x81\xa0"
       "1\xc2\xad\xe3\x85\xa4\xf3\xa0\x81\x81",
       "node1"},
      {"\xe2\x80\x8a\xe2\x80\x90\xef\xbb\xbe\xc2\xac\xc2\xae\xef\xb8\x8f",
       "\xe2\x80\x8a\xe2\x80\x90\xef\xbb\xbe\xc2\xac\xc2\xae\xef\xb8\x8f"},
      {"surrogate \xed\xa0\x80", "surrogate \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
  };
  for (const auto& c : cases) EXPECT_EQ(SanitizeForTerminal(c.in), c.out);
}

TEST(SanitizeKeepingColors, KeepsOnlyColorSequences) {
  const struct {
    std::string in, out;
  } cases[] = {
      {"plain", "plain"},
      {"\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"},
      {"\x1b[31mopen", "\x1b[31mopen\x1b[0m"},
      {"\x1b[38;5;8mgrey\x1b[m", "\x1b[38;5;8mgrey\x1b[m"},
      {"\x1b[38;2;8;8;8m\x1b[48:5:8mx\x1b[m", "\x1b[38;2;8;8;8m\x1b[48:5:8mx\x1b[m"},
      {"\x1b[8mhidden", "hidden"},
      {"\x1b[0;8mhidden", "hidden"},
      {"\x1b[38;5;1;8mhidden", "hidden"},
      {"\x1b[2J\x1b[1A\x1b]0;t\x07x", "x"},
      {"\x1b[>4;2mx\x1b[?1mx", "xx"},
      {"\x1b[31", ""},
  };
  for (const auto& c : cases) EXPECT_EQ(SanitizeKeepingColors(c.in), c.out) << c.in;
}

TEST(SanitizeForTerminal, RemovesForbiddenCharactersFromRandomBytes) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 50'000; ++round) {
    std::string in;
    for (size_t n = random() % 24; n > 0; --n) {
      if (random() % 2 == 0)
        in += kHostilePieces[random() % std::size(kHostilePieces)];
      else
        in += random() % 3 == 0 ? '\x1b' : static_cast<char>(random() % 256);
    }
    const std::string out = SanitizeForTerminal(in);
    ASSERT_EQ(FindForbidden(out), "") << "round " << round;
    ASSERT_EQ(out.find_first_of("\r\n"), std::string::npos) << "round " << round;
    ASSERT_EQ(SanitizeForTerminal(out), out) << "round " << round;
    ASSERT_EQ(WithoutEscapes(in).find('\x1b'), std::string::npos) << "round " << round;
  }
}

TEST(SanitizeForTerminal, KeepsValidText) {
  const std::string text =
      "Gr\xc3\xb6\xc3\x9f"
      "e \xe6\x97\xa5\xe6\x9c\xac \xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d \xf0\x9f\x9a\x80\t~";
  EXPECT_EQ(FindForbidden(text), "");
  EXPECT_EQ(SanitizeForTerminal(text), text);
  EXPECT_EQ(WithoutEscapes(text), text);
}

TEST(SanitizeMessage, IndentsAllLinesButTheFirst) {
  EXPECT_EQ(SanitizeMessage(""), "");
  EXPECT_EQ(SanitizeMessage("one\x1b[2J"), "one");
  EXPECT_EQ(SanitizeMessage("one\n"), "one");
  EXPECT_EQ(SanitizeMessage("one\ndslaunch: two\n  three\n\x1b[0mfour\n"),
            "one\n  dslaunch: two\n  three\n  four");
  EXPECT_EQ(SanitizeMessage("a\rdslaunch: b\v\xe2\x80\xa8"
                            "c"),
            "adslaunch: bc");
}

TEST(WithoutEscapes, RemovesOnlyEscapeSequences) {
  const struct {
    std::string in, out;
  } cases[] = {
      {"", ""},
      {"\x1b[1;31mred\x1b[0m", "red"},
      {"\x1b]0;title\x07text", "text"},
      {"a\x1b]52;c;cm0=\x1b\\b\x1b", "ab"},
      {"cut \x1b]0;title", "cut "},
      {"\xff\x80 Latin-1 \xe9\x07\x7f\x9b\xc2\x9b", "\xff\x80 Latin-1 \xe9\x07\x7f\x9b\xc2\x9b"},
      {std::string("nul\0x", 5), std::string("nul\0x", 5)},
  };
  for (const auto& c : cases) EXPECT_EQ(WithoutEscapes(c.in), c.out);
}

TEST(Truncate, SanitizesAndCutsWholeCharacters) {
  EXPECT_EQ(Truncate("a\x1b[2J\nb"), "ab");
  EXPECT_EQ(Truncate("123456", 6), "123456");
  EXPECT_EQ(Truncate("1234567", 6), "123456...");
  EXPECT_EQ(Truncate("12345\xc3\xb6", 6), "12345...");
  EXPECT_EQ(Truncate("\xff\xff\xff", 4), "\xef\xbf\xbd...");
  EXPECT_EQ(Quoted(""), "''");
  EXPECT_EQ(Quoted(std::string(1000, 'x')), "'" + std::string(kMaxTruncatedBytes, 'x') + "...'");
}

}  // namespace
}  // namespace dslaunch::sanitize_test

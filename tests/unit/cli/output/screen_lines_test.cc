#include "cli/output/screen_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "proto/contract/line_assembler.h"

namespace dslaunch::screen_lines_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

const ScreenLines::TimePoint kNow = ScreenLines::TimePoint() + std::chrono::hours(1);

class ScreenLinesTest : public testing::Test {
 protected:
  void Add(std::string_view bytes, ScreenLines::TimePoint now = kNow) {
    screen_.Append(bytes, now, sink_);
  }
  std::vector<std::string> Live() const { return screen_.Live(kNow); }

  ScreenLines screen_;
  std::vector<std::string> lines_;
  const ScreenLines::Sink sink_ = [this](std::string_view line) { lines_.emplace_back(line); };
};

TEST_F(ScreenLinesTest, PassesLinesAndKeepsProgressBarAsOneLine) {
  Add("begin\n\nnext\r\n");
  EXPECT_THAT(lines_, ElementsAre("begin", "", "next"));
  for (int percent = 0; percent <= 100; percent += 10) Add("\r" + std::to_string(percent) + "%|##");
  EXPECT_THAT(Live(), ElementsAre("100%|##"));
  Add("\nend\n");
  EXPECT_THAT(lines_, ElementsAre("begin", "", "next", "100%|##", "end"));
  EXPECT_THAT(Live(), IsEmpty());
}

TEST_F(ScreenLinesTest, ShowsUnfinishedLineAfterDelay) {
  Add("password: ");
  EXPECT_THAT(Live(), IsEmpty());
  EXPECT_THAT(screen_.Live(kNow + kPartialLineDelay), ElementsAre("password: "));
  EXPECT_THAT(lines_, IsEmpty());
  screen_.Enter();  // the user has pressed Enter, and the terminal has echoed the newline
  Add("welcome\n");
  EXPECT_THAT(lines_, ElementsAre("welcome"));
}

// Simulates tqdm with a nested bar.
TEST_F(ScreenLinesTest, RedrawsNestedBars) {
  for (int outer = 0; outer < 3; ++outer) {
    Add("\router " + std::to_string(outer));
    for (int inner = 0; inner < 5; ++inner) Add("\n\rinner " + std::to_string(inner) + "\x1b[A");
  }
  EXPECT_THAT(Live(), ElementsAre("outer 2", "inner 4"));
  EXPECT_LE(lines_.size(), 1u);  // output before the stream moved up for the first time
  screen_.Finish(sink_);
  EXPECT_THAT(lines_, testing::Contains("inner 4"));
  EXPECT_THAT(Live(), IsEmpty());
}

// Simulates rich, which erases the line, and then moves up and erases for each further line.
TEST_F(ScreenLinesTest, RedrawsTable) {
  Add("a 0\nb 0\nc 0");
  for (int i = 1; i < 4; ++i) {
    const std::string n = std::to_string(i);
    Add("\r\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2Ka " + n + "\nb " + n + "\nc " + n);
  }
  EXPECT_THAT(Live(), ElementsAre("a 3", "b 3", "c 3"));
  Add("\n");
  screen_.Finish(sink_);
  EXPECT_THAT(lines_, ElementsAre("a 0", "b 0", "a 3", "b 3", "c 3"));
}

TEST_F(ScreenLinesTest, BackspaceRemovesCharacter) {
  Add("ab\xc3\xb6\b \bX\n");
  EXPECT_THAT(lines_, ElementsAre("abX"));
}

TEST_F(ScreenLinesTest, KeepsEscapesThatDoNotMoveTheCursor) {
  Add("\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2Jx\n");
  EXPECT_THAT(lines_, ElementsAre("\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2Jx"));
}

TEST_F(ScreenLinesTest, SplitsLongLinesAndBoundsCursorMoves) {
  Add(std::string(3 * kMaxDisplayLineBytes, 'x'));
  EXPECT_EQ(lines_.size(), 2u);
  Add("\x1b[99999999A\x1b[5A");
  for (int i = 0; i < 1000; ++i) Add("line\n");
  EXPECT_GT(lines_.size(), 900u);
  EXPECT_LE(screen_.Live(kNow).size(), 64u);
}

TEST_F(ScreenLinesTest, ResultDoesNotDependOnSplitOfBytes) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string pieces[] = {"\x1b[A", "\x1b[2K", "\x1b[K", "\x1b[3F", "\x1b[1G", "\x1b[31m",
                                "\x1b",   "text",    "\n",     "\r",      "\b",      "\xc3\xb6"};
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (size_t i = random() % 60; i > 0; --i) text += pieces[random() % std::size(pieces)];
    ScreenLines whole;
    ScreenLines bytes;
    std::vector<std::string> of_whole;
    std::vector<std::string> of_bytes;
    const auto into = [](std::vector<std::string>& lines) {
      return [&lines](std::string_view line) { lines.emplace_back(line); };
    };
    whole.Append(text, kNow, into(of_whole));
    for (const char c : text) bytes.Append({&c, 1}, kNow, into(of_bytes));
    EXPECT_EQ(whole.Live(kNow), bytes.Live(kNow));
    whole.Finish(into(of_whole));
    bytes.Finish(into(of_bytes));
    EXPECT_EQ(of_whole, of_bytes);
  }
}

}  // namespace
}  // namespace dslaunch::screen_lines_test

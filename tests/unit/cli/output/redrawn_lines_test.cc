#include "cli/output/redrawn_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace dslaunch::redrawn_lines_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

class RedrawnLinesTest : public testing::Test {
 protected:
  std::vector<std::string> Append(std::string_view bytes, milliseconds later = milliseconds(0)) {
    now_ += later;
    return Given([&](const auto& sink) { lines_.Append(bytes, now_, sink); });
  }
  std::vector<std::string> FlushPartial() {
    return Given([&](const auto& sink) { lines_.FlushPartial(now_, sink); });
  }
  std::vector<std::string> Flush(milliseconds later) {
    now_ += later;
    return Given([&](const auto& sink) { lines_.Flush(now_, sink); });
  }
  std::vector<std::string> Finish() {
    return Given([&](const auto& sink) { lines_.Finish(sink); });
  }

  RedrawnLines lines_;
  RedrawnLines::TimePoint now_{seconds(1000)};

 private:
  template <class Call>
  std::vector<std::string> Given(Call call) {
    std::vector<std::string> given;
    call([&](std::string_view line) { given.emplace_back(line); });
    return given;
  }
};

TEST_F(RedrawnLinesTest, OutputsPlainLinesAtOnce) {
  EXPECT_THAT(Append("a\nb\r\n\npart"), ElementsAre("a", "b", ""));
  EXPECT_THAT(Append("ly\r"), ElementsAre("partly"));
  EXPECT_THAT(Append("\nc\n"), ElementsAre("c"));
  EXPECT_THAT(Append("? "), IsEmpty());
  EXPECT_THAT(FlushPartial(), ElementsAre("? "));
  EXPECT_EQ(lines_.FlushDue(), std::nullopt);
}

// Simulates tqdm, which redraws its bar 10 times a second for an hour.
TEST_F(RedrawnLinesTest, OutputsStateOfBarEveryTenSecondsAndAtEnd) {
  size_t lines = 0;
  for (int i = 0; i < 36'000; ++i)
    lines += Append("\r" + std::to_string(i) + "|##", milliseconds(100)).size();
  EXPECT_LE(lines, 361u);
  EXPECT_GE(lines, 355u);
  EXPECT_THAT(Append("\r100%|####\n"), ElementsAre("100%|####"));
  EXPECT_THAT(Append("saved\n"), ElementsAre("saved"));
}

TEST_F(RedrawnLinesTest, OutputsHeldStateWhenDue) {
  EXPECT_THAT(Append("1%\r"), ElementsAre("1%"));
  EXPECT_THAT(Append("2%\r", milliseconds(100)), IsEmpty());
  EXPECT_THAT(Append("3%\r   \r", milliseconds(100)), IsEmpty());
  ASSERT_TRUE(lines_.FlushDue());
  EXPECT_THAT(Flush(seconds(1)), IsEmpty());
  EXPECT_THAT(Flush(seconds(9)), ElementsAre("3%"));
  EXPECT_EQ(lines_.FlushDue(), std::nullopt);
  EXPECT_THAT(Append("\r4%", milliseconds(100)), IsEmpty());
  EXPECT_THAT(FlushPartial(), IsEmpty()) << "not a prompt";
  EXPECT_THAT(Flush(seconds(10)), ElementsAre("4%"));
  EXPECT_THAT(Append("\r"), IsEmpty());
}

TEST_F(RedrawnLinesTest, OutputsLastStateAtEnd) {
  EXPECT_THAT(Append("1\r2\r"), ElementsAre("1"));
  EXPECT_THAT(Append("\n"), ElementsAre("2")) << "its row has ended";
  EXPECT_THAT(Append("3\r4\r"), IsEmpty());
  EXPECT_THAT(Finish(), ElementsAre("4"));
  EXPECT_THAT(Append("5\r6"), IsEmpty());
  EXPECT_THAT(Finish(), ElementsAre("6"));
}

TEST_F(RedrawnLinesTest, LimitsOutputOfNestedBars) {
  size_t lines = 0;
  for (int i = 0; i < 1000; ++i) {
    lines += Append("\r" + std::to_string(i) + "|#\n", milliseconds(50)).size();
    lines += Append("\r" + std::to_string(i) + "|inner\x1b[A", milliseconds(50)).size();
  }
  EXPECT_LE(lines, 15u);
}

}  // namespace
}  // namespace dslaunch::redrawn_lines_test

#include "proto/contract/status_line.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace dslaunch::status_line_test {
namespace {

TEST(StatusLineTest, ParsesDocumentedExamples) {
  EXPECT_EQ(StatusLine::Parse("{\"event\":\"ready\"}")->event, StatusLine::Event::kReady);
  const auto step = StatusLine::Parse(
      R"({"event":"step","step":120,"total_steps":1000,"loss":0.31,"samples_per_s":5120,"compute_s":0.125})");
  ASSERT_TRUE(step);
  EXPECT_EQ(step->step, 120);
  EXPECT_EQ(step->total_steps, 1000);
  EXPECT_DOUBLE_EQ(*step->loss, 0.31);
  EXPECT_DOUBLE_EQ(*step->samples_per_s, 5120);
  EXPECT_DOUBLE_EQ(*step->compute_s, 0.125);
}

TEST(StatusLineTest, ReadsLossToleratedOnlyInReady) {
  EXPECT_FALSE(StatusLine::Parse(R"({"event":"ready"})")->loss_tolerated);
  StatusLine line;
  line.loss_tolerated = true;
  EXPECT_TRUE(StatusLine::Parse(line.Format())->loss_tolerated);
  EXPECT_FALSE(StatusLine::Parse(R"({"event":"ready","loss_tolerated":1})")->loss_tolerated);
  EXPECT_FALSE(
      StatusLine::Parse(R"({"event":"step","step":1,"loss_tolerated":true})")->loss_tolerated);
}

TEST(StatusLineTest, ParsesLostRankWithinItsRange) {
  StatusLine line;
  line.event = StatusLine::Event::kLost;
  line.lost_rank = 4294967295;
  EXPECT_EQ(StatusLine::Parse(line.Format())->lost_rank, 4294967295);
  EXPECT_EQ(StatusLine::Parse(R"({"rank":3,"event":"lost"})")->event, StatusLine::Event::kLost);
  EXPECT_FALSE(StatusLine::Parse(R"({"event":"lost"})"));
  EXPECT_FALSE(StatusLine::Parse(R"({"event":"lost","rank":-1})"));
  EXPECT_FALSE(StatusLine::Parse(R"({"event":"lost","rank":4294967296})"));
  EXPECT_FALSE(StatusLine::Parse(R"({"event":"lost","rank":"3"})"));
  EXPECT_TRUE(StatusLine::Parse(R"({"event":"step","step":1,"rank":-1})"));
}

TEST(StatusLineTest, ParsesReportsAboutCopies) {
  StatusLine line;
  line.event = StatusLine::Event::kCopied;
  line.step = 120;
  const auto copied = StatusLine::Parse(line.Format());
  ASSERT_TRUE(copied);
  EXPECT_EQ(copied->event, StatusLine::Event::kCopied);
  EXPECT_EQ(copied->step, 120);

  line.event = StatusLine::Event::kRestored;
  for (const bool from_memory : {false, true}) {
    line.from_memory = from_memory;
    line.reached_step = from_memory ? std::optional<int64_t>(127) : std::nullopt;
    const auto restored = StatusLine::Parse(line.Format());
    ASSERT_TRUE(restored) << line.Format();
    EXPECT_EQ(restored->event, StatusLine::Event::kRestored);
    EXPECT_EQ(restored->step, 120);
    EXPECT_EQ(restored->from_memory, from_memory);
    EXPECT_EQ(restored->reached_step, line.reached_step);
  }
}

TEST(StatusLineTest, RejectsInvalidReportsAboutCopies) {
  for (const char* line :
       {R"({"event":"copied"})", R"({"event":"copied","step":-1})",
        R"({"event":"restored","step":1})", R"({"event":"restored","source":"memory"})",
        R"({"event":"restored","step":1,"source":"tape"})",
        R"({"event":"restored","step":1,"source":"disk","reached_step":-2})"})
    EXPECT_FALSE(StatusLine::Parse(line)) << line;
}

TEST(StatusLineTest, ParsesFormattedStep) {
  StatusLine line;
  line.event = StatusLine::Event::kStep;
  line.step = 7;
  line.total_steps = 9;
  line.loss = 1.25;
  const auto back = StatusLine::Parse(line.Format());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->step, 7);
  EXPECT_EQ(back->total_steps, 9);
  EXPECT_EQ(back->loss, 1.25);
  EXPECT_FALSE(back->samples_per_s);
}

TEST(StatusLineTest, WritesNanLossAsNull) {
  StatusLine line;
  line.event = StatusLine::Event::kStep;
  line.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(line.Format().find("\"loss\":null"), std::string::npos);
  EXPECT_FALSE(StatusLine::Parse(line.Format())->loss);
}

TEST(StatusLineTest, ReadsAllNumbersOfAnEvaluationAsResults) {
  StatusLine line;
  line.event = StatusLine::Event::kEval;
  line.step = 938;
  line.results = {{"loss", std::nan("")}, {"accuracy", 0.8712}, {"tokens", 12'345'678'901}};
  EXPECT_EQ(line.Format(),
            "{\"event\":\"eval\",\"step\":938,\"loss\":null,\"accuracy\":0.8712,"
            "\"tokens\":12345678901}\n");
  const auto back = StatusLine::Parse(
      R"({"loss":null,"event":"eval","name":"x","top@5":0.99,"a b":1,"ok":true,"step":938})");
  ASSERT_TRUE(back);
  EXPECT_EQ(back->step, 938);
  ASSERT_EQ(back->results.size(), 2u);
  EXPECT_EQ(back->results[0].first, "loss");
  EXPECT_TRUE(std::isnan(back->results[0].second));
  EXPECT_EQ(back->results[1], (std::pair<std::string, double>("top@5", 0.99)));
  EXPECT_TRUE(StatusLine::Parse(R"({"event":"step","step":3,"mine":5})")->results.empty());
}

TEST(StatusLineTest, IgnoresUnknownFields) {
  const auto line =
      StatusLine::Parse(R"( { "event" : "step" , "note" : "x", "step" : 3 , "flag":true } )");
  ASSERT_TRUE(line);
  EXPECT_EQ(line->step, 3);
}

TEST(StatusLineTest, RejectsMalformedLines) {
  for (const char* text :
       {"", "{}", "hello", "[1]", R"({"event":"step"})", R"({"event":"step","step":-1})",
        R"({"event":"step","step":1.5})", R"({"event":"step","step":99999999999999999999})",
        R"({"event":"dance"})", R"({"event":"ready"} x)", R"({"event":"ready")",
        R"({"event":"re\u0061dy"})", R"({"event":"step","step":{"a":1}})", R"({"step":1})"}) {
    EXPECT_FALSE(StatusLine::Parse(text)) << text;
  }
  EXPECT_FALSE(StatusLine::Parse("{\"event\":\"ready\",\"x\":\"" +
                                 std::string(kMaxStatusLineBytes, 'a') + "\"}"));
}

TEST(StatusLineTest, SurvivesRandomBytes) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::string alphabet = "{}\":,eventstpradyloss0123456789.-null \\\n\t\xff";
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (unsigned n = random() % 60; n > 0; --n) text += alphabet[random() % alphabet.size()];
    StatusLine::Parse(text);
  }
}

}  // namespace
}  // namespace dslaunch::status_line_test

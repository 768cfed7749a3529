#include "trainer/config/json/json_object.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/base/train_error.h"

namespace dslaunch::json_object_test {
namespace {

std::string Message(const std::function<void()>& read) {
  try {
    read();
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    return error.what();
  }
  return "accepted";
}

TEST(ParseJsonTest, AcceptsCommentsAndRefusesDuplicateKeys) {
  EXPECT_EQ(ParseJson("{\"a\": 1 // one\n}", "f"), nlohmann::json({{"a", 1}}));
  EXPECT_EQ(Message([] { ParseJson(R"({"a": {"b": 1, "b": 2}})", "f"); }),
            "f: the key \"b\" is given twice; keep one of them");
  EXPECT_EQ(ParseJson(R"({"a": {"b": 1}, "c": {"b": 2}})", "f").size(), 2u);
}

TEST(ParseJsonTest, NamesSourceAndPlaceOfMalformedText) {
  EXPECT_THAT(Message([] { ParseJson("{\"a\":\n ]}", "my.json"); }),
              testing::AllOf(testing::StartsWith("my.json: not valid JSON: "),
                             testing::HasSubstr("line 2")));
  EXPECT_THAT(Message([] { ParseJson("", "my.json"); }),
              testing::StartsWith("my.json: not valid JSON: "));
}

TEST(DidYouMeanTest, SuggestsOnlyCloseWords) {
  const std::set<std::string> known = {"train_batch_size", "optimizer", "lr"};
  EXPECT_EQ(DidYouMean("train_bacth_size", known), "train_batch_size");
  EXPECT_EQ(DidYouMean("Optimiser", known), "optimizer");
  EXPECT_EQ(DidYouMean("zero_optimization", known), std::nullopt);
  EXPECT_EQ(DidYouMean("xy", known), std::nullopt);
}

TEST(JsonObjectTest, NamesFullPathOfWrongValues) {
  const nlohmann::json json = {{"n", "five"}, {"small", -1}, {"half", 0.5},        {"word", "cmn"},
                               {"flag", 1},   {"list", {1}}, {"text", {{"a", 1}}}, {"huge", 1e300}};
  JsonObject object(json, "f", "a.b");
  EXPECT_EQ(Message([&] { object.Int("n", 0); }), "f: a.b.n is \"five\", not a whole number");
  EXPECT_EQ(Message([&] { object.Int("half", 0); }), "f: a.b.half is 0.5, not a whole number");
  EXPECT_EQ(Message([&] { object.Int("small", 0, 9); }),
            "f: a.b.small is -1; it must be at least 0 and at most 9");
  EXPECT_EQ(Message([&] { object.Number("huge", 0, 1); }),
            "f: a.b.huge is 1e+300; it must be at least 0 and at most 1");
  EXPECT_EQ(Message([&] { object.Bool("flag"); }), "f: a.b.flag is 1, neither true nor false");
  EXPECT_EQ(Message([&] { object.String("text"); }), "f: a.b.text is {\"a\":1}, not a text");
  EXPECT_EQ(Message([&] { object.Numbers("list", 2, 0, 1); }),
            "f: a.b.list is [1]; it must be a list of 2 numbers from 0 to 1");
  EXPECT_EQ(Message([&] {
              object.Word("word", {"cnn", "mlp"});
            }),
            "f: a.b.word is \"cmn\"; did you mean \"cnn\"? Known: cnn, mlp");
  EXPECT_EQ(Message([&] { object.Object("n"); }), "f: a.b.n is \"five\", not an object with keys");
}

TEST(JsonObjectTest, TreatsNullAsAbsent) {
  const nlohmann::json json = {{"n", nullptr}};
  JsonObject object(json, "f", "");
  EXPECT_EQ(object.Int("n", 0), std::nullopt);
  object.RefuseUnknown();
}

TEST(JsonObjectTest, RefuseUnlessOffAcceptsOnlyOffValues) {
  const auto check = [](const nlohmann::json& value) {
    return Message([&] {
      const nlohmann::json json = {{"fp16", value}};
      JsonObject object(json, "f", "engine");
      object.RefuseUnlessOff({"fp16"}, "is not for us");
      object.RefuseUnknown();
    });
  };
  EXPECT_EQ(check({{"enabled", false}, {"loss_scale", 0}}), "accepted");
  EXPECT_EQ(check(nlohmann::json::object()), "accepted");
  EXPECT_EQ(check(false), "accepted");
  EXPECT_EQ(check({{"enabled", true}}), "f: engine.fp16 is not for us");
  EXPECT_EQ(check({{"enabled", "auto"}}), "f: engine.fp16 is not for us");
  EXPECT_EQ(check({{"stage", 0}}), "f: engine.fp16 is not for us");
  EXPECT_EQ(check(1), "f: engine.fp16 is not for us");
}

TEST(JsonObjectTest, RefuseUnlessStandardAcceptsOnlyStandardValue) {
  const auto check = [](const nlohmann::json& value, const nlohmann::json& standard) {
    return Message([&] {
      const nlohmann::json json = {{"x", value}};
      JsonObject object(json, "f", "engine");
      object.RefuseUnlessStandard("x", standard, "it is not here; leave it out");
      object.RefuseUnknown();
    });
  };
  EXPECT_EQ(check(nullptr, 3), "accepted");
  EXPECT_EQ(check(3.0, 3), "accepted");
  EXPECT_EQ(check(4, 3), "f: engine.x is 4, but it is not here; leave it out");
  const nlohmann::json section = {{"a", 1}, {"in", {{"b", true}}}};
  EXPECT_EQ(check({{"a", 1}, {"in", {{"b", true}}}}, section), "accepted");
  EXPECT_EQ(check(nlohmann::json::object(), section), "accepted");
  EXPECT_EQ(check({{"in", {{"b", false}}}}, section),
            "f: engine.x.in.b is false, but it is not here; leave it out");
  EXPECT_EQ(check({{"in", {{"bb", true}}}}, section),
            "f: engine.x.in.bb is not a known key; known here: b");
  EXPECT_EQ(check(true, section), "f: engine.x is true, not an object with keys");
  const nlohmann::json switched = {{"enabled", false}, {"level", 1}};
  EXPECT_EQ(check({{"enabled", false}, {"level", 2}}, switched), "accepted");
  EXPECT_EQ(check({{"level", 2}}, switched), "accepted");
  EXPECT_THAT(check({{"enabled", true}, {"level", 1}}, switched),
              testing::StartsWith("f: engine.x.enabled is true, but it is not here"));
  EXPECT_THAT(check({{"enabled", false}, {"levle", 1}}, switched),
              testing::HasSubstr("did you mean \"level\"?"));
}

TEST(JsonObjectTest, ReadsWholeFloatsAsIntegers) {
  const nlohmann::json json = {{"n", 5e8}, {"huge", 1e300}, {"auto", "auto"}, {"column", 3}};
  JsonObject object(json, "f", "");
  EXPECT_EQ(object.Int("n", 0), 500'000'000);
  EXPECT_EQ(Message([&] { object.Int("huge", 0); }), "f: huge is 1e+300, not a whole number");
  EXPECT_THAT(Message([&] { object.Int("auto", 0); }), testing::HasSubstr("not a whole number"));
  EXPECT_EQ(object.StringOrInt("column"), "3");
  EXPECT_EQ(object.StringOrInt("auto"), "auto");
}

}  // namespace
}  // namespace dslaunch::json_object_test

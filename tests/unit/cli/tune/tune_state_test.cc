#include "cli/tune/tune_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace dslaunch::tune_state_test {
namespace {

using ::testing::HasSubstr;

std::vector<TuneRow> Rows() {
  TuneRow measured{.candidate = {{8, 1, 0, 0, 2, 4}}};
  measured.predicted_s = 0.5;
  measured.steps_s = {0.25, 0.5, 0.125};
  measured.trials = 1;
  measured.needs_bytes = 1000;
  measured.peak_bytes = 900;
  TuneRow fails{.candidate = {{16, 3, 1, 2, 1, 1}}};
  fails.end = TrialEnd::kOutOfMemory;
  fails.has_bytes = 7;
  fails.cause = "out of memory: \"much\"";
  return {measured, fails};
}

TEST(TuneStateTest, ReadsBackWhatItWrites) {
  const std::string text = StateText({}, "k", Rows());
  const Result<std::vector<TuneRow>> rows = ReadState(text, "k", "f.tune");
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  EXPECT_EQ(*rows, Rows());
}

TEST(TuneStateTest, RejectsStateOfAnotherSearch) {
  const Result<std::vector<TuneRow>> rows =
      ReadState(StateText({}, "k", Rows()), "other", "f.tune");
  ASSERT_FALSE(rows.ok());
  EXPECT_EQ(rows.error().code, ExitCode::kBadInput);
  EXPECT_THAT(rows.error().message,
              HasSubstr("f.tune: is the state of a search with another recipe"));
}

TEST(TuneStateTest, KeyDependsOnRecipeAndPlace) {
  EXPECT_EQ(TuneKey("{}", {"a", "b"}), TuneKey("{}", {"a", "b"}));
  EXPECT_NE(TuneKey("{}", {"a", "b"}), TuneKey("{}", {"ab"}));
  EXPECT_NE(TuneKey("{}", {"a"}), TuneKey("[]", {"a"}));
}

TEST(TuneStateTest, RejectsMalformedText) {
  const std::string good = StateText({}, "k", Rows());
  for (const auto& [change, value] : std::vector<std::pair<std::string, nlohmann::json>>{
           {"/trials", 3},
           {"/search", nullptr},
           {"/trials/0", 1},
           {"/trials/0/end", "won"},
           {"/trials/0/micro_batch", -1},
           {"/trials/0/micro_batch", 0},
           {"/trials/0/pipeline", int64_t{1} << 40},
           {"/trials/0/tensor", 0},
           {"/trials/0/micro_batch", "8"},
           {"/trials/0/steps_s", {1, -1}},
           {"/trials/0/steps_s", nlohmann::json::array()},
           {"/trials/0/trials", 1e30},
           {"/trials/1/needs_bytes", nullptr}}) {
    nlohmann::json state = nlohmann::json::parse(good);
    state[nlohmann::json::json_pointer(change)] = value;
    const Result<std::vector<TuneRow>> rows = ReadState(state.dump(), "k", "f");
    ASSERT_FALSE(rows.ok()) << change << " " << value;
    EXPECT_THAT(rows.error().message, HasSubstr("is no state of dslaunch tune"));
  }
  EXPECT_FALSE(ReadState("", "k", "f").ok());
  EXPECT_FALSE(ReadState(good.substr(0, good.size() / 2), "k", "f").ok());
}

}  // namespace
}  // namespace dslaunch::tune_state_test

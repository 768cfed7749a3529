#include "trainer/profile/profile_result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace dslaunch::profile_result_test {
namespace {

using ::testing::HasSubstr;

ProfileResult Result() {
  return {.rank = 1,
          .steps = 3,
          .wall_s = 1.5,
          .rows = {{"aten::mm", 36, 0.41, 0.42, 1048576}},
          .communication = {.total_s = 0.2,
                            .hidden_s = 0.15,
                            .kinds = {{"all_reduce", 4, 4194304, 0.2}}},
          .memory = {.parameters = 3 << 20, .gradients = 1 << 20, .peak_rss = 77},
          .allocated = 5 << 20};
}

TEST(ProfileResultTest, JsonFollowsContract) {
  EXPECT_EQ(nlohmann::json::parse(ProfileJson(Result())), nlohmann::json::parse(R"(
      {"rank": 1, "steps": 3, "wall_s": 1.5,
       "operators": [{"name": "aten::mm", "calls": 36, "self_s": 0.41, "total_s": 0.42,
                      "self_bytes": 1048576}],
       "communication": {"total_s": 0.2, "hidden_s": 0.15,
                         "kinds": [{"name": "all_reduce", "calls": 4, "bytes": 4194304, "s": 0.2}]},
       "memory": {"parameters": 3145728, "gradients": 1048576, "buckets": 0, "optimizer": 0,
                  "buffers": 0, "activations": 0, "allocated": 5242880}})"));
}

TEST(ProfileResultTest, TextSummarizesResult) {
  const std::string text = ProfileText(Result(), 10);
  EXPECT_THAT(text, HasSubstr("aten::mm"));
  EXPECT_THAT(text, HasSubstr("communication 200.000 ms, 75% of it while this rank computed: "
                              "all_reduce 4 x 1.0 MiB"));
  EXPECT_THAT(text, HasSubstr("parameters 3.0 MiB, gradients 1.0 MiB, total 4.0 MiB of 5.0 MiB "
                              "allocated"));
  ProfileResult alone = Result();
  alone.communication = {};
  alone.allocated = 0;
  EXPECT_TRUE(ProfileText(alone, 10).ends_with("\nno communication"));
}

}  // namespace
}  // namespace dslaunch::profile_result_test

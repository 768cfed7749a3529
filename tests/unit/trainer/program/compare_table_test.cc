#include "trainer/program/compare_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::compare_table_test {
namespace {

using ::testing::HasSubstr;

TEST(PrecisionTableTest, HasOneColumnPerPrecision) {
  const std::string text = PrecisionTable({{.precision = "fp32",
                                            .step_s = 0.2,
                                            .per_s = 1000,
                                            .loss = 2.5,
                                            .peak_bytes = 4 << 20,
                                            .memory = {.parameters = 2 << 20}},
                                           {.precision = "fp16",
                                            .step_s = 0.1,
                                            .per_s = 2000,
                                            .loss = 2.6,
                                            .skipped = 3,
                                            .peak_bytes = 3 << 20,
                                            .memory = {.parameters = 1 << 20}}},
                                          "tokens");
  EXPECT_THAT(text, HasSubstr("                           fp32         fp16\n"));
  EXPECT_THAT(text, HasSubstr("step                   200.0 ms     100.0 ms\n"));
  EXPECT_THAT(text, HasSubstr("tokens/s                   1000         2000\n"));
  EXPECT_THAT(text, HasSubstr("speed                    1.00 x       2.00 x\n"));
  EXPECT_THAT(text, HasSubstr("peak memory             4.0 MiB      3.0 MiB\n"));
  EXPECT_THAT(text, HasSubstr("  parameters            2.0 MiB      1.0 MiB\n"));
  EXPECT_THAT(text, HasSubstr("loss at the end          2.5000       2.6000\n"));
  EXPECT_TRUE(text.ends_with("skipped steps                 0            3")) << text;
}

}  // namespace
}  // namespace dslaunch::compare_table_test

#include "trainer/profile/module_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace dslaunch::module_table_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<ModuleRow> Modules() {
  return {{.name = "", .type = "Net", .parameters = 1},
          {.name = "h", .type = "ModuleList"},
          {.name = "h.0", .type = "Block"},
          {.name = "h.0.attn", .type = "Attention"},
          {.name = "h.0.attn.in", .type = "Linear", .parameters = 30},
          {.name = "h.0.attn.out", .type = "Linear", .parameters = 10},
          {.name = "h.0.mlp", .type = "Linear", .parameters = 40}};
}

ModuleRow Row(const std::vector<ModuleRow>& rows, const std::string& name) {
  return *std::ranges::find(rows, name, &ModuleRow::name);
}

// Operators of one block: attention between its two projections, and an addition between the second
// projection and the mlp.
const std::vector<ForwardOp> kOperators = {{.module = "h.0.attn.in", .flops = 300, .seconds = 3},
                                           {.module = {}, .flops = 50, .seconds = 1},
                                           {.module = "h.0.attn.out", .flops = 100, .seconds = 1},
                                           {.module = {}, .flops = 0, .seconds = 0.5},
                                           {.module = "h.0.mlp", .flops = 400, .seconds = 4},
                                           {.module = {}, .flops = 7, .seconds = 0.5}};

TEST(ModuleTableTest, CountsInnerModules) {
  const std::vector<ModuleRow> rows = ModuleRows(Modules(), kOperators);
  EXPECT_EQ(Row(rows, "h.0.attn").flops, 450)
      << "with the operators in between that read no parameter";
  EXPECT_EQ(Row(rows, "h.0.attn").seconds, 5);
  EXPECT_EQ(Row(rows, "h.0").flops, 850);
  EXPECT_EQ(Row(rows, "h.0").seconds, 9.5) << "with the addition";
  EXPECT_EQ(Row(rows, "").flops, 857) << "with the operators after the last module";
  EXPECT_EQ(Row(rows, "").parameters, 81);
  EXPECT_EQ(Row(rows, "h.0.attn").parameters, 40);
  EXPECT_EQ(Row(rows, "h.0.attn.in").depth, 4);
}

TEST(ModuleTableTest, TextListsModulesByDepth) {
  const FlopsProfile profile = {.step = 5,
                                .micro_batches = 2,
                                .ranks = 4,
                                .step_s = 0.5,
                                .rows = ModuleRows(Modules(), kOperators)};
  FlopsProfilerConfig config;
  const std::string all = FlopsProfileText(profile, config);
  EXPECT_THAT(all, HasSubstr("operations of step 5 on rank 0 of 4, in 2 micro-batches"));
  EXPECT_THAT(all,
              HasSubstr("the whole step                   2.57 KFLOP in 500.000 ms, 5.14 KFLOPS"));
  EXPECT_THAT(all, HasSubstr("depth 3, by FLOPs: h.0.attn 52.5%\n"));
  EXPECT_THAT(all, HasSubstr("depth 4, by time: h.0.attn.in 30.0%\n"));
  EXPECT_THAT(all, HasSubstr("Attention"));
  config.module_depth = 3;
  config.top_modules = 2;
  config.detailed = false;
  const std::string some = FlopsProfileText(profile, config);
  EXPECT_THAT(some, HasSubstr("depth 3, by FLOPs: h.0.attn 52.5%, h.0.mlp 46.7%\n"));
  EXPECT_THAT(some, Not(HasSubstr("depth 4")));
  EXPECT_THAT(some, Not(HasSubstr("Attention")));
}

}  // namespace
}  // namespace dslaunch::module_table_test

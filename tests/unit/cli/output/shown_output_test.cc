#include "cli/output/shown_output.h"

#include <gtest/gtest.h>

namespace dslaunch::shown_output_test {
namespace {

TEST(ShownOutput, CountsRanksShownByAllOptions) {
  const std::vector<int> two = {0, 1};
  EXPECT_EQ((ShownOutput{{true, {}}, {}, {}}.CountRanks(16, 2, 8)), 16u);
  // Fewer ranks are counted after a node was lost.
  EXPECT_EQ((ShownOutput{{true, {}}, {}, {}}.CountRanks(8, 2, 8)), 8u);
  EXPECT_EQ((ShownOutput{{false, {}}, {}, {}}.CountRanks(16, 2, 8)), 0u);
  EXPECT_EQ((ShownOutput{{false, {0, 3, 16}}, {}, {}}.CountRanks(16, 2, 8)), 2u);
  EXPECT_EQ((ShownOutput{{true, {}}, two, {}}.CountRanks(16, 2, 8)), 4u);
  EXPECT_EQ((ShownOutput{{false, {5}}, two, {}}.CountRanks(16, 2, 8)), 1u);
  const RankStreams all_but_local_0 = {RankStreams::kBoth, {{0, 0}}};
  EXPECT_EQ((ShownOutput{{true, {}}, {}, all_but_local_0}.CountRanks(16, 2, 8)), 2u);
  const RankStreams stderr_only = {RankStreams::kStdout, {}};
  EXPECT_EQ((ShownOutput{{true, {}}, {}, stderr_only}.CountRanks(16, 2, 8)), 16u);
}

TEST(ShownOutput, ToProtoContainsAllChoices) {
  const ShownOutput shown = {{false, {2}}, std::vector{0}, {RankStreams::kStderr, {{1, 3}}}};
  EXPECT_EQ(shown.ToProto().ShortDebugString(),
            "ranks: 2 local_ranks: 0 left_out_of { key: 1 value: 3 } left_out: 2");
  const ShownOutput nothing = {{true, {}}, std::vector<int>(), {}};
  EXPECT_EQ(nothing.ToProto().ShortDebugString(), "");
}

}  // namespace
}  // namespace dslaunch::shown_output_test

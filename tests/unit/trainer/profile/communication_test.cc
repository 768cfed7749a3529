#include "trainer/profile/communication.h"

#include <gtest/gtest.h>

namespace dslaunch::communication_test {
namespace {

TEST(CommunicationTest, FindsKindInNamesOfBackends) {
  EXPECT_EQ(CommunicationKind("gloo:all_reduce"), "all_reduce");
  EXPECT_EQ(CommunicationKind("nccl:_all_gather_base"), "all_gather");
  EXPECT_EQ(CommunicationKind("nccl:send 0->1"), "send");
  EXPECT_EQ(CommunicationKind("shm:reduce_scatter"), "reduce_scatter");
  EXPECT_EQ(CommunicationKind("aten::add"), std::nullopt);
  EXPECT_EQ(CommunicationKind("c10d::allreduce_"), std::nullopt) << "which only starts one";
  EXPECT_EQ(CommunicationKind("autograd::engine::evaluate_function: AddBackward0"), std::nullopt);
  EXPECT_EQ(CommunicationKind("backward"), std::nullopt);
}

TEST(CommunicationTest, FindsKindInNcclKernels) {
  const auto kind = [](const char* kernel) {
    return KernelCommunicationKind(kernel).value_or("-");
  };
  EXPECT_EQ(kind("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
            "all_reduce");
  EXPECT_EQ(kind("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(...)"), "reduce_scatter");
  EXPECT_EQ(kind("ncclDevKernel_AllGather_RING_LL(...)"), "all_gather");
  EXPECT_EQ(kind("ncclDevKernel_SendRecv(...)"), "send");
  EXPECT_EQ(kind("void at::native::AllReduce_kernel"), "-");
}

TEST(CommunicationTest, HiddenTimeOverlapsWithComputing) {
  const CommunicationSummary summary =
      Summarize({{"all_reduce", 100, {0, 4'000'000'000}},
                 {"all_reduce", 50, {3'000'000'000, 6'000'000'000}},
                 {"send", 8, {10'000'000'000, 11'000'000'000}}},
                {{1'000'000'000, 2'000'000'000},
                 {1'500'000'000, 2'500'000'000},
                 {5'000'000'000, 10'500'000'000}});
  EXPECT_DOUBLE_EQ(summary.total_s, 7);
  EXPECT_DOUBLE_EQ(summary.hidden_s, 1.5 + 1 + 0.5);
  ASSERT_EQ(summary.kinds.size(), 2u);
  EXPECT_EQ(summary.kinds[0].name, "all_reduce");
  EXPECT_EQ(summary.kinds[0].calls, 2);
  EXPECT_EQ(summary.kinds[0].bytes, 150);
  EXPECT_DOUBLE_EQ(summary.kinds[0].seconds, 7);
}

TEST(CommunicationTest, SummarizesNoExchanges) {
  const CommunicationSummary summary = Summarize({}, {{0, 5}});
  EXPECT_EQ(summary.total_s, 0);
  EXPECT_EQ(summary.hidden_s, 0);
}

// The examples are from doc/PERFORMANCE.md of nccl-tests.
TEST(CommunicationTest, BandwidthsMatchNcclTests) {
  EXPECT_DOUBLE_EQ(BandwidthOf("all_reduce", 4e9, 2, 4).algorithm, 2);
  EXPECT_DOUBLE_EQ(BandwidthOf("all_reduce", 4e9, 2, 4).bus, 3);
  EXPECT_DOUBLE_EQ(BandwidthOf("all_gather", 1e9, 2, 4).algorithm, 2);
  EXPECT_DOUBLE_EQ(BandwidthOf("all_gather", 1e9, 2, 4).bus, 1.5);
  EXPECT_DOUBLE_EQ(BandwidthOf("reduce_scatter", 4e9, 2, 4).bus, 1.5);
  EXPECT_DOUBLE_EQ(BandwidthOf("broadcast", 4e9, 2, 4).bus, 2);
  EXPECT_EQ(BandwidthOf("send", 4e9, 0, 4).bus, 0) << "too short to measure";
}

}  // namespace
}  // namespace dslaunch::communication_test

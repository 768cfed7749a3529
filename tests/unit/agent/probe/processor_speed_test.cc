#include "agent/probe/processor_speed.h"

#include <gtest/gtest.h>

namespace dslaunch {
namespace {

TEST(MeasureProcessor, ReturnsSpeedAndShare) {
  const ProcessorSpeed speed = MeasureProcessor(2, milliseconds(30));
  EXPECT_GT(speed.core_flops, 10'000'000u);
  EXPECT_GT(speed.cpu_share_permille, 0u);
  EXPECT_LE(speed.cpu_share_permille, 1000u);
}

TEST(MeasureMemory, ReturnsBytesPerSecond) {
  EXPECT_GT(MeasureMemory(milliseconds(30)).bytes_per_s, 10'000'000u);
}

}  // namespace
}  // namespace dslaunch

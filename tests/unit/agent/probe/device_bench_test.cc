#include "agent/probe/device_bench.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch {
namespace {

TEST(ParseDeviceSpeeds, ReadsLinesOfDevices) {
  const auto speeds = ParseDeviceSpeeds(
      "a notice\ndevice 0 700 50 49 4000\ndevice 1 1 2 3\ndevice 1 -1 2 3 4\ndevice 3 8 7 6 5\n");
  ASSERT_EQ(2u, speeds.size());
  EXPECT_EQ("GPU 0", speeds[0].name());
  EXPECT_EQ(700u, speeds[0].gemm_flops());
  EXPECT_EQ(50u, speeds[0].to_device_bytes_per_s());
  EXPECT_EQ(49u, speeds[0].from_device_bytes_per_s());
  EXPECT_EQ(4000u, speeds[0].memory_bytes_per_s());
  EXPECT_EQ("GPU 3", speeds[1].name());
}

TEST(MeasureDevices, ReportsProgramThatFails) {
  const auto failed = MeasureDevices("/bin/false", milliseconds(5'000));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ("/bin/false ended with exit code 1", failed.error().message);
  const auto missing = MeasureDevices("/no/trainer", milliseconds(5'000));
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, testing::HasSubstr("/no/trainer does not start: "));
}

}  // namespace
}  // namespace dslaunch

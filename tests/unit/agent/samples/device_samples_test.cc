#include "agent/samples/device_samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::device_samples_test {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The output of driver 580 for an H200.
constexpr char kLine[] =
    "3, GPU-12ab, 412.10, 700.00, 61, 99, 143771, 62464, 1980, 2, 0, 0x0000000000000024, NVIDIA "
    "H200";

TEST(DeviceSamplesTest, ReadsAllValues) {
  const auto device = ParseDeviceLine(kLine, 0);
  ASSERT_TRUE(device);
  EXPECT_EQ(device->index(), 3u);
  EXPECT_EQ(device->uuid(), "GPU-12ab");
  EXPECT_DOUBLE_EQ(device->power_w(), 412.1);
  EXPECT_DOUBLE_EQ(device->power_limit_w(), 700);
  EXPECT_EQ(device->temperature_c(), 61u);
  EXPECT_EQ(device->utilization_percent(), 99u);
  EXPECT_EQ(device->memory_bytes(), uint64_t{143771} << 20);
  EXPECT_EQ(device->memory_used_bytes(), uint64_t{62464} << 20);
  EXPECT_EQ(device->sm_clock_mhz(), 1980u);
  EXPECT_EQ(device->ecc_corrected(), 2u);
  EXPECT_EQ(device->ecc_uncorrected(), 0u);
  EXPECT_EQ(device->throttle_reasons(), 0x24u);
  EXPECT_EQ(device->name(), "NVIDIA H200");
}

TEST(DeviceSamplesTest, LeavesUnreportedValuesUnset) {
  const auto device = ParseDeviceLine(
      "0, GPU-1, [N/A], [Not Supported], [Unknown Error], [N/A], [N/A], [N/A], [N/A], [N/A], N/A, "
      "[N/A], NVIDIA GB10, shared",
      0);
  ASSERT_TRUE(device);
  EXPECT_FALSE(device->has_power_w() || device->has_power_limit_w() || device->has_temperature_c());
  EXPECT_FALSE(device->has_utilization_percent() || device->has_memory_bytes());
  EXPECT_FALSE(device->has_sm_clock_mhz() || device->has_ecc_corrected());
  EXPECT_FALSE(device->has_throttle_reasons());
  EXPECT_EQ(device->name(), "NVIDIA GB10, shared");
}

TEST(DeviceSamplesTest, LeavesImpossibleValuesUnset) {
  const auto device =
      ParseDeviceLine("0, GPU-1, nan, -1, 1e300, 101, 1e18, 5x, , 1e16, -0.1, 24, name", 0);
  ASSERT_TRUE(device);
  EXPECT_FALSE(device->has_power_w() || device->has_power_limit_w() || device->has_temperature_c());
  EXPECT_FALSE(device->has_utilization_percent() || device->has_memory_bytes());
  EXPECT_FALSE(device->has_memory_used_bytes() || device->has_sm_clock_mhz());
  EXPECT_FALSE(device->has_ecc_corrected() || device->has_ecc_uncorrected());
  EXPECT_FALSE(device->has_throttle_reasons());
}

TEST(DeviceSamplesTest, RejectsLinesThatAreNotAboutDevices) {
  for (const char* line :
       {"", "No devices were found", "0, GPU-1", "Unable to determine the device handle, GPU-1",
        "0, 12ab, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0x0, name"})
    EXPECT_FALSE(ParseDeviceLine(line, 0)) << line;
}

TEST(DeviceSamplesTest, LastQueryHasNoThrottleReasons) {
  EXPECT_THAT(DeviceQuery(0), HasSubstr(",clocks_throttle_reasons.active,name"));
  EXPECT_THAT(DeviceQuery(kDeviceQueries - 1), Not(HasSubstr("reasons")));
  EXPECT_THAT(DeviceQuery(kDeviceQueries - 1), EndsWith(",name"));
  const auto device =
      ParseDeviceLine("0, GPU-1, 1, 1, 1, 1, 1, 1, 1, 1, 7, name", kDeviceQueries - 1);
  ASSERT_TRUE(device);
  EXPECT_EQ(device->ecc_uncorrected(), 7u);
  EXPECT_EQ(device->name(), "name");
}

TEST(DeviceSamplesTest, FindsDevicesByIndexAndUuid) {
  std::vector<pb::DeviceSample> devices(2);
  devices[0].set_index(0);
  devices[0].set_uuid("GPU-aa11");
  devices[1].set_index(1);
  devices[1].set_uuid("GPU-bb22");
  EXPECT_THAT(DevicesNamed("1", devices), ElementsAre(1));
  EXPECT_THAT(DevicesNamed("GPU-aa", devices), ElementsAre(0));
  EXPECT_THAT(DevicesNamed("2", devices), IsEmpty());
  EXPECT_THAT(DevicesNamed("", devices), IsEmpty());
}

}  // namespace
}  // namespace dslaunch::device_samples_test

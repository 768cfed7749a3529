#include "trainer/device/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/device/cuda_driver.h"

namespace dslaunch::device_choice_test {
namespace {

using ::testing::HasSubstr;

constexpr char kPlugin[] = "/x/libdslaunch_cuda.so";

TEST(ChooseDevice, ChoosesDeviceOfLocalRank) {
  for (const DeviceKind asked : {DeviceKind::kAuto, DeviceKind::kCuda}) {
    for (int local_rank = 0; local_rank < 2; ++local_rank) {
      const auto chosen = ChooseDevice(asked, local_rank, {2, "", kPlugin});
      ASSERT_TRUE(chosen.ok()) << chosen.error().message;
      EXPECT_TRUE(chosen->cuda);
      EXPECT_EQ(chosen->index, local_rank);
      EXPECT_EQ(chosen->notice, "");
    }
  }
}

TEST(ChooseDevice, ChoosesCpuOnRequestOrWithoutDevice) {
  for (const auto& [asked, info] : {std::pair(DeviceKind::kCpu, CudaInfo{2, "", kPlugin}),
                                    std::pair(DeviceKind::kAuto, CudaInfo{0, "no driver", kPlugin}),
                                    std::pair(DeviceKind::kAuto, CudaInfo{0, "no driver", ""})}) {
    const auto chosen = ChooseDevice(asked, 7, info);
    ASSERT_TRUE(chosen.ok()) << chosen.error().message;
    EXPECT_FALSE(chosen->cuda);
    EXPECT_EQ(chosen->notice, "");
  }
}

TEST(ChooseDevice, NotifiesAboutIdleGpu) {
  const auto chosen = ChooseDevice(DeviceKind::kAuto, 0, {1, "", ""});
  ASSERT_TRUE(chosen.ok());
  EXPECT_FALSE(chosen->cuda);
  EXPECT_THAT(chosen->notice, HasSubstr("built without CUDA"));
}

TEST(ChooseDevice, RejectsMissingDeviceWithHint) {
  for (const auto& [asked, local_rank, info, says] :
       {std::tuple(DeviceKind::kCuda, 0, CudaInfo{0, "there is no driver", kPlugin},
                   "there is no driver"),
        std::tuple(DeviceKind::kCuda, 0, CudaInfo{1, "", ""}, "built without CUDA"),
        std::tuple(DeviceKind::kAuto, 2, CudaInfo{2, "", kPlugin}, "the process sees 2")}) {
    const auto chosen = ChooseDevice(asked, local_rank, info);
    ASSERT_FALSE(chosen.ok());
    EXPECT_EQ(chosen.error().code, ExitCode::kUnavailable);
    EXPECT_THAT(chosen.error().message, HasSubstr(says));
    EXPECT_THAT(chosen.error().message, HasSubstr("--device cpu"));
  }
}

// Tests against the driver in tests/support/cuda/fake_cuda_driver.cc.
class CountCudaDevicesTest : public ::testing::Test {
 protected:
  ~CountCudaDevicesTest() override {
    unsetenv("FAKE_CUDA_DEVICES");
    unsetenv("FAKE_CUDA_ERROR");
  }
  CudaDevices Count(const char* devices, const char* error) {
    setenv("FAKE_CUDA_DEVICES", devices, 1);
    setenv("FAKE_CUDA_ERROR", error, 1);
    return CountCudaDevices(DSLAUNCH_FAKE_CUDA_DRIVER);
  }
};

TEST_F(CountCudaDevicesTest, ReturnsCountOfDriver) {
  EXPECT_EQ(Count("3", "0").count, 3);
  const CudaDevices hidden = Count("0", "0");
  EXPECT_EQ(hidden.count, 0);
  EXPECT_THAT(hidden.none_reason, HasSubstr("no CUDA device"));
  EXPECT_THAT(Count("0", "100").none_reason, HasSubstr("no CUDA device"));
}

TEST_F(CountCudaDevicesTest, ReportsWhyThereIsNoDevice) {
  const CudaDevices broken = Count("1", "803");
  EXPECT_EQ(broken.count, 0);
  EXPECT_THAT(broken.none_reason, HasSubstr("the fake driver's words for 803"));
  EXPECT_THAT(CountCudaDevices("libno-such-driver.so.1").none_reason,
              HasSubstr("no NVIDIA driver (libno-such-driver.so.1)"));
  EXPECT_THAT(CountCudaDevices("libm.so.6").none_reason, HasSubstr("is not an NVIDIA driver"));
}

}  // namespace
}  // namespace dslaunch::device_choice_test

#include "trainer/device/cuda_plugin.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/base/train_error.h"

namespace dslaunch {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Refusal(const std::string& path) {
  try {
    LoadCudaPlugin(path);
  } catch (const TrainError& error) {
    EXPECT_EQ(error.code(), ExitCode::kUnavailable);
    return error.what();
  }
  return "not refused";
}

TEST(LoadCudaPlugin, RejectsLibraryOfAnotherBuild) {
  EXPECT_THAT(Refusal(DSLAUNCH_FOREIGN_CUDA_PLUGIN),
              AllOf(HasSubstr("dslaunch 9.9.9"), HasSubstr("this trainer is dslaunch "),
                    HasSubstr("--device cpu"), Not(HasSubstr("\x1b"))));
  EXPECT_THAT(Refusal("/no/such/libdslaunch_cuda.so"),
              AllOf(HasSubstr("/no/such/libdslaunch_cuda.so"), HasSubstr("--device cpu")));
  EXPECT_THAT(Refusal("libm.so.6"), HasSubstr("is not a plugin of dslaunch"));
}

#ifdef DSLAUNCH_CUDA_PLUGIN
// Needs no GPU. A library can be loaded only if all libraries that it needs are found, and LibTorch
// then supports CUDA.
TEST(LoadCudaPlugin, LoadsLibraryOfThisBuild) {
  EXPECT_EQ(LoadCudaPlugin(DSLAUNCH_CUDA_PLUGIN).type(), c10::kCUDA);
  EXPECT_TRUE(c10::impl::hasDeviceGuardImpl(c10::kCUDA));
}
#endif

}  // namespace
}  // namespace dslaunch

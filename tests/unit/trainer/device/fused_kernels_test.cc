// Tests for which tensors the device's kernels are used, and the behaviour if the kernels cannot be
// compiled.
#include "trainer/device/fused_kernels.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/support/cuda/libtorch_kernels.h"

namespace dslaunch::fused_kernels_test {
namespace {

TEST(FusedKernelsTest, ReportsKernelsThatCannotBeCompiled) {
  for (const bool reports_error : {true, false}) {
    testing::internal::CaptureStdout();
    StartFusedKernels(c10::kCPU, reports_error, []() -> std::unique_ptr<FusedKernels> {
      TORCH_CHECK(false, "libnvrtc.so.13 cannot be opened");
    });
    EXPECT_EQ(FusedKernelsFor(at::ones({2, 2})), nullptr);
    EXPECT_EQ(testing::internal::GetCapturedStdout(),
              reports_error
                  ? "steps will be slower than they could be: the trainer's own kernels cannot be "
                    "compiled for this GPU: libnvrtc.so.13 cannot be opened\n"
                  : "");
  }
}

TEST(FusedKernelsTest, ReturnsKernelsForSupportedTensors) {
  StartFusedKernels(c10::kCPU, /*reports_error=*/true, &MakeLibtorchKernels);
  const at::Tensor rows = at::ones({4, 8});
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    EXPECT_NE(FusedKernelsFor(rows.to(type)), nullptr);
  }
  EXPECT_EQ(FusedKernelsFor(rows.to(at::kDouble)), nullptr);
  EXPECT_EQ(FusedKernelsFor(rows.to(at::kLong)), nullptr);
  EXPECT_EQ(FusedKernelsFor(rows.t()), nullptr);
  EXPECT_EQ(FusedKernelsFor(at::empty({0, 8})), nullptr);
  EXPECT_EQ(FusedKernelsFor(at::empty({4, 8}, at::kMeta)), nullptr);
}

}  // namespace
}  // namespace dslaunch::fused_kernels_test

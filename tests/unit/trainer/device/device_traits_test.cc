#include "trainer/device/device_traits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch::device_traits_test {
namespace {

using testing::HasSubstr;

TEST(DeviceTraitsTest, ReadsFormatsOfCpu) {
  const auto of = [](const std::string& flags) {
    return TraitsOfCpu("processor\t: 0\nflags\t\t: fpu " + flags + " sse\nbugs: x\n");
  };
  EXPECT_FALSE(of("avx512f").bfloat16);
  EXPECT_FALSE(of("avx512f").float16);
  EXPECT_TRUE(of("avx512_bf16").bfloat16);
  EXPECT_FALSE(of("avx512_bf16").float16);
  EXPECT_TRUE(of("amx_fp16").float16);
  EXPECT_FALSE(TraitsOfCpu("Features : fp asimdhp\n").bfloat16);
  EXPECT_TRUE(TraitsOfCpu("Features : fp asimdhp\n").float16);
  EXPECT_TRUE(TraitsOfCpu("").bfloat16) << "nothing is known";
}

TEST(DeviceTraitsTest, ReportsOnlyEmulatedPrecision) {
  PrecisionConfig precision;
  const DeviceTraits none = {.float16 = false, .bfloat16 = false};
  EXPECT_EQ(PrecisionRemark(precision, none), "");
  precision.model = Dtype::kBFloat16;
  EXPECT_EQ(PrecisionRemark(precision, {.float16 = false, .bfloat16 = true}), "");
  EXPECT_THAT(PrecisionRemark(precision, none), HasSubstr("does not compute in bf16"));
  EXPECT_THAT(PrecisionRemark(precision, {.float16 = true, .bfloat16 = false}),
              HasSubstr("it does compute in fp16"));
  precision.model = Dtype::kFloat32;
  precision.autocast = Dtype::kFloat16;
  EXPECT_THAT(PrecisionRemark(precision, none), HasSubstr("fp16"));
}

}  // namespace
}  // namespace dslaunch::device_traits_test

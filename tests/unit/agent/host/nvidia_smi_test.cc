#include "agent/host/nvidia_smi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/temp_dir.h"

namespace dslaunch::nvidia_smi_test {
namespace {

using ::testing::HasSubstr;

constexpr milliseconds kPatience(10'000);

class NvidiaSmiTest : public ::testing::Test {
 protected:
  ~NvidiaSmiTest() override {
    for (const char* name : {"GPUS", "ERROR", "HANGS"})
      ::unsetenv((std::string("FAKE_NVIDIA_") + name).c_str());
  }
  static void Fake(const char* name, const char* value) {
    ::setenv((std::string("FAKE_NVIDIA_") + name).c_str(), value, 1);
  }
};

TEST_F(NvidiaSmiTest, ReportsNoGpusAndNoErrorWithoutProgram) {
  const pb::Gpus gpus = ReadGpus("", kPatience);
  EXPECT_EQ(gpus.installed_size(), 0);
  EXPECT_EQ(gpus.driver(), "");
  EXPECT_EQ(gpus.trouble(), "");
}

TEST_F(NvidiaSmiTest, ReadsDriverAndDevices) {
  Fake("GPUS", "2");
  const pb::Gpus gpus = ReadGpus(DSLAUNCH_FAKE_NVIDIA_SMI, kPatience);
  EXPECT_EQ(gpus.trouble(), "");
  EXPECT_EQ(gpus.driver(), "580.82.07");
  EXPECT_EQ(gpus.cuda(), "13.1");
  ASSERT_EQ(gpus.installed_size(), 2);
  EXPECT_EQ(gpus.installed(1).name(), "NVIDIA Fake");
  EXPECT_EQ(gpus.installed(1).uuid(), "GPU-2");
  EXPECT_EQ(gpus.installed(1).memory_bytes(), uint64_t{80} << 30);
  EXPECT_EQ(gpus.installed(1).memory_used_bytes(), uint64_t{1} << 20);
}

TEST_F(NvidiaSmiTest, OmitsValuesUnknownToTheDriver) {
  const pb::Gpus gpus = ParseNvidiaSmi(
      "580.95.05, [N/A], [N/A], GPU-1, NVIDIA GB10, shared\n\nrubbish\n", "unknown option\n");
  ASSERT_EQ(gpus.installed_size(), 1);
  EXPECT_EQ(gpus.installed(0).name(), "NVIDIA GB10, shared");
  EXPECT_EQ(gpus.installed(0).memory_bytes(), 0u);
  EXPECT_EQ(gpus.cuda(), "");
}

TEST_F(NvidiaSmiTest, ReportsErrorOfTheDriver) {
  Fake("ERROR", "Failed to initialize NVML: Driver/library version mismatch");
  const pb::Gpus gpus = ReadGpus(DSLAUNCH_FAKE_NVIDIA_SMI, kPatience);
  EXPECT_EQ(gpus.installed_size(), 0);
  EXPECT_EQ(gpus.trouble(),
            "nvidia-smi: Failed to initialize NVML: Driver/library version mismatch");
}

TEST_F(NvidiaSmiTest, ReportsFileThatCannotBeExecuted) {
  const TempDir dir;
  EXPECT_THAT(ReadGpus(dir.Write("nvidia-smi", "text", true), kPatience).trouble(),
              HasSubstr("nvidia-smi: Exec format error"));
}

TEST_F(NvidiaSmiTest, DoesNotWaitForDriverThatHangs) {
  Fake("HANGS", "1");
  EXPECT_EQ(ReadGpus(DSLAUNCH_FAKE_NVIDIA_SMI, milliseconds(200)).trouble(),
            "nvidia-smi: the driver does not answer");
}

}  // namespace
}  // namespace dslaunch::nvidia_smi_test

#include "agent/host/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/temp_dir.h"

namespace dslaunch::nvml_test {
namespace {

using ::testing::HasSubstr;

constexpr milliseconds kPatience(5000);

class NvmlTest : public ::testing::Test {
 protected:
  ~NvmlTest() override {
    for (const char* name : {"GPUS", "DRIVER", "ERROR", "HANGS"})
      ::unsetenv((std::string("FAKE_NVML_") + name).c_str());
  }
  static void Fake(const char* name, const char* value) {
    ::setenv((std::string("FAKE_NVML_") + name).c_str(), value, 1);
  }
};

TEST_F(NvmlTest, AMachineWithoutTheLibraryHasNoGpusAndNoTrouble) {
  const TempDir dir;
  const pb::Gpus gpus = ReadGpus(dir / "libnvidia-ml.so.1", kPatience);
  EXPECT_EQ(gpus.installed_size(), 0);
  EXPECT_EQ(gpus.driver(), "");
  EXPECT_EQ(gpus.trouble(), "");
}

TEST_F(NvmlTest, ReadsDriverAndDevices) {
  Fake("GPUS", "2");
  const pb::Gpus gpus = ReadGpus(DSLAUNCH_FAKE_NVML, kPatience);
  EXPECT_EQ(gpus.driver(), "580.82.07");
  EXPECT_EQ(gpus.cuda(), "13.1");
  ASSERT_EQ(gpus.installed_size(), 2);
  EXPECT_EQ(gpus.installed(1).name(), "NVIDIA Fake");
  EXPECT_EQ(gpus.installed(1).uuid(), "GPU-2");
  EXPECT_EQ(gpus.installed(1).memory_bytes(), uint64_t{80} << 30);
  EXPECT_EQ(gpus.installed(1).memory_used_bytes(), uint64_t{1} << 20);
  EXPECT_EQ(gpus.trouble(), "");
}

TEST_F(NvmlTest, SaysWhyADriverDoesNotServe) {
  Fake("ERROR", "18");
  const pb::Gpus gpus = ReadGpus(DSLAUNCH_FAKE_NVML, kPatience);
  EXPECT_EQ(gpus.installed_size(), 0);
  EXPECT_EQ(gpus.trouble(), "nvmlInit_v2: Driver/library version mismatch");
}

TEST_F(NvmlTest, ALibraryThatIsAnotherIsNamed) {
  EXPECT_THAT(ReadGpus("libc.so.6", kPatience).trouble(), HasSubstr("no such function"));
}

TEST_F(NvmlTest, ADriverThatHangsIsNotWaitedFor) {
  Fake("HANGS", "1");
  const Deadline soon = Deadline::After(milliseconds(3000));
  EXPECT_EQ(ReadGpus(DSLAUNCH_FAKE_NVML, milliseconds(200)).trouble(),
            "the driver does not answer");
  EXPECT_FALSE(soon.Expired());
}

}  // namespace
}  // namespace dslaunch::nvml_test

#include "agent/probe/gpu_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dslaunch {
namespace {

constexpr char kGpus[] =
    "0, GPU-a, 81559, 4, 0, No, Not Active, Not Active, 1980\n"
    "1, GPU-b, 81559, 40960, 3, Yes, Active, Active, 1980\n"
    "2, GPU-c, 15360, 0, [N/A], [N/A], Not Active, [N/A], 1590\n"
    "not a GPU\n";
constexpr char kApps[] =
    "GPU-b, 77, 512, /usr/bin/small\n"
    "GPU-b, 78, 40000, /opt/conda/bin/python, with a comma\n";

TEST(ParseGpuHealth, ReadsMemoryErrorsAndClocks) {
  const std::vector<pb::GpuHealth> gpus = ParseGpuHealth(kGpus, kApps);
  ASSERT_EQ(3u, gpus.size());
  EXPECT_EQ("GPU-a", gpus[0].uuid());
  EXPECT_EQ(uint64_t{81559} << 20, gpus[0].memory_bytes());
  EXPECT_EQ("", gpus[0].slowdown());
  EXPECT_EQ("", gpus[0].holder());
  EXPECT_EQ(3u, gpus[1].uncorrected_errors());
  EXPECT_TRUE(gpus[1].pages_pending());
  EXPECT_EQ("thermal and power brake", gpus[1].slowdown());
  EXPECT_EQ("python, with a comma (pid 78, 41.9 GB)", gpus[1].holder());
  EXPECT_EQ(0u, gpus[2].uncorrected_errors());
  EXPECT_FALSE(gpus[2].pages_pending());
  EXPECT_EQ(1590u, gpus[2].max_clock_mhz());
}

TEST(AreFree, ExaminesOnlyWantedGpus) {
  const std::vector<pb::GpuHealth> gpus = ParseGpuHealth(kGpus, kApps);
  EXPECT_TRUE(AreFree(gpus, 1));
  EXPECT_FALSE(AreFree(gpus, 2));
  EXPECT_TRUE(AreFree({}, 8));
}

TEST(ExamineGpus, ReportsFailureOfProgram) {
  const GpuHealthReport report = ExamineGpus("/bin/false", 1, milliseconds(0));
  EXPECT_EQ("nvidia-smi: exit code 1", report.trouble);
  EXPECT_EQ("", ExamineGpus("", 1, milliseconds(0)).trouble);
}

}  // namespace
}  // namespace dslaunch

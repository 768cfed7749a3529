#include "agent/samples/machine_sample.h"

#include <gtest/gtest.h>

namespace dslaunch::machine_sample_test {
namespace {

TEST(MachineSampleTest, AddsBusyTimes) {
  // Columns: user nice system idle iowait irq softirq steal guest guest_nice
  const pb::MachineSample sample =
      ParseMachineTexts({"cpu  10 20 30 4000 500 1 2 3 10 0\ncpu0 1 1 1 1\n", "", ""}, 100);
  EXPECT_EQ(sample.cpu_ms(), 660u);
}

TEST(MachineSampleTest, AddsInterfacesExceptLoopback) {
  const pb::MachineSample sample =
      ParseMachineTexts({"",
                         "Inter-|   Receive\n face |bytes    packets\n"
                         "    lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0\n"
                         "  eth0: 1000 1 0 0 0 0 0 0 30 1 0 0 0 0 0 0\n"
                         "ib0:200 1 0 0 0 0 0 0 4 1 0 0 0 0 0 0\n",
                         ""},
                        100);
  EXPECT_EQ(sample.network_received_bytes(), 1200u);
  EXPECT_EQ(sample.network_sent_bytes(), 34u);
}

TEST(MachineSampleTest, AddsWholeDisks) {
  const pb::MachineSample sample = ParseMachineTexts({"", "",
                                                      " 259 0 nvme0n1 9 9 10 9 9 9 20 9 0 0 0\n"
                                                      " 259 1 nvme0n1p1 9 9 10 9 9 9 20 9 0 0 0\n"
                                                      "   8 0 sda 9 9 100 9 9 9 200 9 0 0 0\n"
                                                      "   8 1 sda1 9 9 100 9 9 9 200 9 0 0 0\n"
                                                      " 253 0 dm-0 9 9 100 9 9 9 200 9 0 0 0\n"
                                                      "   7 0 loop0 9 9 100 9 9 9 200 9 0 0 0\n"},
                                                     100);
  EXPECT_EQ(sample.disk_read_bytes(), 110u * 512);
  EXPECT_EQ(sample.disk_written_bytes(), 220u * 512);
}

TEST(MachineSampleTest, IgnoresMalformedTexts) {
  const pb::MachineSample sample =
      ParseMachineTexts({"cpu\n", "\n\n:\nx:\n", "1\nsda\n1 2 sda\n"}, 0);
  EXPECT_EQ(sample.cpu_ms(), 0u);
  EXPECT_EQ(sample.network_received_bytes(), 0u);
  EXPECT_EQ(sample.disk_read_bytes(), 0u);
}

TEST(MachineSampleTest, ReadsThisMachine) {
  const pb::MachineSample sample = ReadMachineSample();
  EXPECT_GT(sample.cores(), 0u);
  EXPECT_GT(sample.cpu_ms(), 0u);
  EXPECT_GT(sample.memory_bytes(), sample.memory_used_bytes());
  EXPECT_GT(sample.memory_used_bytes(), 0u);
}

}  // namespace
}  // namespace dslaunch::machine_sample_test

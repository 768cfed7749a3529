#include "cli/launchers/slurm_ports.h"

#include <gtest/gtest.h>

namespace dslaunch::slurm_ports_test {
namespace {

constexpr std::string_view kSetting = "Slurm's SrunPortRange";

TEST(SlurmPortsTest, FindsRangeInSlurmConf) {
  EXPECT_EQ(FindSrunPortRange("ClusterName=a\n  srunportrange=60001-63000 # for srun\nX=1\n"),
            (PortRange{60001, 63000, kSetting}));
  EXPECT_EQ(FindSrunPortRange("SrunPortRange=7000-7000"), (PortRange{7000, 7000, kSetting}));
}

TEST(SlurmPortsTest, IgnoresCommentsAndInvalidRanges) {
  for (const char* text :
       {"", "#SrunPortRange=60001-63000", "NoSrunPortRange=1-2",
        "SrunPortRange=", "SrunPortRange=7", "SrunPortRange=9-8", "SrunPortRange=0-8",
        "SrunPortRange=1-99999", "SrunPortRange=a-b", "SrunPortRange=1-2-3"})
    EXPECT_EQ(FindSrunPortRange(text), std::nullopt) << text;
}

}  // namespace
}  // namespace dslaunch::slurm_ports_test

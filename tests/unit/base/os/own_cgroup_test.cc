#include "base/os/own_cgroup.h"

#include <gtest/gtest.h>

namespace dslaunch::own_cgroup_test {
namespace {

std::string Own(std::string_view mountinfo, std::string_view cgroups) {
  const Result<std::string> folder = FindOwnCgroup(mountinfo, cgroups);
  return folder ? *folder : "none: " + folder.error().message;
}

constexpr char kUnified[] =
    "24 29 0:22 / /proc rw,nosuid shared:13 - proc proc rw\n"
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

TEST(FindOwnCgroup, FindsCgroupOnUnifiedHierarchy) {
  EXPECT_EQ(Own(kUnified, "0::/user.slice/user-1000.slice/session-3.scope\n"),
            "/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope");
  EXPECT_EQ(Own(kUnified, "0::/\n"), "/sys/fs/cgroup");
}

TEST(FindOwnCgroup, FindsVersion2BesideVersion1) {
  EXPECT_EQ(Own("31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
                "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
                "4:memory:/elsewhere\n1:name=systemd:/x\n0::/job\n"),
            "/sys/fs/cgroup/unified/job");
}

TEST(FindOwnCgroup, ResolvesPathInPartialMount) {
  const std::string part =
      "30 23 0:26 /docker/12 /sys/fs/cgroup rw master:5 - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(Own(part, "0::/docker/12\n"), "/sys/fs/cgroup");
  EXPECT_EQ(Own(part, "0::/docker/12/init\n"), "/sys/fs/cgroup/init");
  EXPECT_EQ(Own(part, "0::/docker/123\n"),
            "none: the mount /sys/fs/cgroup does not show this process' cgroup /docker/123");
}

TEST(FindOwnCgroup, UnescapesBlanksAndBackslashes) {
  EXPECT_EQ(Own(R"(30 23 0:26 / /a\040b\134c rw - cgroup2 none rw)", "0::/d e\n"), "/a b\\c/d e");
}

TEST(FindOwnCgroup, ReportsWhyThereIsNoCgroup) {
  EXPECT_EQ(Own("35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n", "0::/\n"),
            "none: cgroup v2 is not mounted here");
  EXPECT_EQ(Own(kUnified, "4:memory:/elsewhere\n"), "none: this process is in no cgroup v2");
  EXPECT_EQ(Own(kUnified, "0::/../other\n"),
            "none: this process' cgroup /../other lies outside its namespace");
  EXPECT_EQ(Own("", ""), "none: cgroup v2 is not mounted here");
  EXPECT_EQ(Own("cgroup2\n - cgroup2", "0::/"), "none: cgroup v2 is not mounted here");
}

}  // namespace
}  // namespace dslaunch::own_cgroup_test

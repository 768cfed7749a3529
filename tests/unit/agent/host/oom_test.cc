#include "agent/host/oom.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace dslaunch::oom_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kLog[] =
    "6,100,1000000,-;Memory cgroup out of memory: Killed process 41 (python3) total-vm:1kB\n"
    "4,101,5000000,-;python3 invoked oom-killer: gfp_mask=0x0\n"
    "3,102,6000000,-;Out of memory: Killed process 42 (python3) total-vm:99kB, anon-rss:98kB\n"
    "3,103,6000001,c;audit: Killed process 43 by hand\n";

TEST(OutOfMemoryTest, FindsKillOfTheProcessInKernelLog) {
  EXPECT_THAT(FindOutOfMemoryKill(kLog, 42, 0).value_or(""),
              StartsWith("Out of memory: Killed process 42 (python3)"));
  EXPECT_THAT(FindOutOfMemoryKill(kLog, 41, 0).value_or(""), HasSubstr("cgroup"));
  EXPECT_EQ(FindOutOfMemoryKill(kLog, 4, 0), std::nullopt);
  EXPECT_EQ(FindOutOfMemoryKill(kLog, 43, 0), std::nullopt);
  EXPECT_EQ(FindOutOfMemoryKill("", 42, 0), std::nullopt);
}

TEST(OutOfMemoryTest, IgnoresKillBeforeTheProcessStarted) {
  EXPECT_TRUE(FindOutOfMemoryKill(kLog, 41, 1'000'000));
  EXPECT_FALSE(FindOutOfMemoryKill(kLog, 41, 1'000'001));
}

TEST(OutOfMemoryTest, ReadsKillsFromVmstat) {
  EXPECT_EQ(ParseOutOfMemoryKills("nr_free 7\noom_kill 12\ndrop_slab 1\n"), 12u);
  EXPECT_EQ(ParseOutOfMemoryKills("nr_free 7\n"), 0u);
}

TEST(OutOfMemoryTest, NeedsSigkillAndAFact) {
  OutOfMemoryInfo details;
  details.signal = SIGKILL;
  EXPECT_EQ(DecideOutOfMemory(details), std::nullopt);
  details.kills_before = 3;
  details.kills_now = 4;
  EXPECT_THAT(DecideOutOfMemory(details).value_or(""), StartsWith("probably"));
  details.cgroup_counted = true;
  EXPECT_THAT(DecideOutOfMemory(details).value_or(""), HasSubstr("cgroup"));
  details.kernel_log = "Out of memory: Killed process 42";
  EXPECT_THAT(DecideOutOfMemory(details).value_or(""), HasSubstr("Killed process 42"));
  details.signal = SIGSEGV;
  EXPECT_EQ(DecideOutOfMemory(details), std::nullopt);
}

TEST(OutOfMemoryTest, FindsKillOfPidThatATextNames) {
  EXPECT_THAT(
      FindOutOfMemoryKillNamedIn("DataLoader worker (pid 42) is killed by signal: Killed.", kLog, 0)
          .value_or(""),
      HasSubstr("Killed process 42"));
  EXPECT_THAT(
      FindOutOfMemoryKillNamedIn("DataLoader worker (pid(s) 7, 41) exited unexpectedly", kLog, 0)
          .value_or(""),
      HasSubstr("Killed process 41"));
  for (const char* text : {"", "step 42", "pid 142", "pid 420", "pid 43", "in 42 steps, pid 9"})
    EXPECT_EQ(FindOutOfMemoryKillNamedIn(text, kLog, 0), std::nullopt) << text;
  EXPECT_EQ(FindOutOfMemoryKillNamedIn("pid 42", kLog, 6'000'001), std::nullopt);
}

TEST(OutOfMemoryTest, ReportsKillOfAChildOnlyWithAFact) {
  constexpr char kKilledChild[] = "DataLoader worker (pid 42) is killed by signal: Killed.";
  OutOfMemoryInfo details;
  EXPECT_EQ(DecideChildOutOfMemory(details, kKilledChild), std::nullopt);
  details.kills_now = 1;
  EXPECT_THAT(DecideChildOutOfMemory(details, kKilledChild).value_or(""),
              HasSubstr("killed 1 on this node for memory"));
  EXPECT_EQ(DecideChildOutOfMemory(details, "ValueError: bad"), std::nullopt);
  details.cgroup_counted = true;
  EXPECT_THAT(DecideChildOutOfMemory(details, "ValueError: bad").value_or(""), HasSubstr("cgroup"));
  details.kernel_log = "Out of memory: Killed process 42";
  EXPECT_THAT(DecideChildOutOfMemory(details, kKilledChild).value_or(""),
              HasSubstr("Killed process 42"));
}

TEST(CoreDumpTest, FindsCoreDumpByPattern) {
  EXPECT_EQ(CoreDumpPlace("core\n", true, "/home/u", 7), "in /home/u/core.7");
  EXPECT_EQ(CoreDumpPlace("core\n", false, "/home/u", 7), "in /home/u/core");
  EXPECT_EQ(CoreDumpPlace("/var/crash/%e.%p.%%\n", true, "/home/u", 7), "in /var/crash/*.7.%");
  EXPECT_EQ(CoreDumpPlace("|/usr/lib/systemd/systemd-coredump %P %u\n", false, "/", 7),
            "with systemd-coredump: coredumpctl info 7");
  EXPECT_THAT(CoreDumpPlace("|/usr/share/apport/apport %p\n", false, "/", 7),
              HasSubstr("/usr/share/apport/apport"));
}

}  // namespace
}  // namespace dslaunch::oom_test

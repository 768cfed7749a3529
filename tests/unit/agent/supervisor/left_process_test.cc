#include "agent/supervisor/left_process.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>

#include "base/os/subprocess.h"
#include "tests/support/processes.h"

namespace dslaunch::left_process_test {
namespace {

// A line in the kernel's format of /proc/PID/stat. The name contains a text that looks like other
// fields.
constexpr char kStat[] =
    "4711 (nfs) D 1 (x) D 17 4700 4699 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 987654 9 10 11\n";

TEST(ParseProcessStat, ReadsNameStateAndIds) {
  const auto info = ParseProcessStat(kStat);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->id, (ProcessId{4711, 987654}));
  EXPECT_EQ(info->command, "nfs) D 1 (x");
  EXPECT_EQ(info->state, 'D');
  EXPECT_EQ(info->parent, 17);
  EXPECT_EQ(info->group, 4700);
  EXPECT_EQ(info->session, 4699);
  EXPECT_FALSE(info->ended);
}

TEST(ParseProcessStat, RejectsMalformedText) {
  for (const char* text : {"", "12", "12 (", "12 )(", "12 (x)", "12 (x) "}) {
    EXPECT_FALSE(ParseProcessStat(text)) << text;
  }
}

TEST(LeftProcess, DescribesKernelFunctionIfKnown) {
  const ProcessInfo info = *ParseProcessStat("123 (python3) D 1 1 1 0 -1 0\n");
  LeftProcesses left;
  *left.Add() = MakeLeftProcess(info, "nfs_wait");
  EXPECT_EQ(left[0].pid(), 123);
  EXPECT_EQ(left[0].state(), "D");
  EXPECT_EQ(left[0].command(), "python3");
  EXPECT_EQ(left[0].waits_in(), "nfs_wait");
  *left.Add() = MakeLeftProcess(info, "0");
  EXPECT_EQ(LeftText(left), "123 (python3, D state, waits in nfs_wait), 123 (python3, D state)");
  EXPECT_EQ(LeftText({}), "");
}

TEST(LeftProcess, DescribesARealProcess) {
  const SpawnResult child =
      Spawn({.executable = "/bin/sleep", .argv = {"sleep", "600"}, .own_group = true});
  ASSERT_GT(child.pid, 0);
  ASSERT_TRUE(WaitFor(milliseconds(5000), [&] { return StateOf(child.pid) == 'S'; }));
  const ProcessInfo info = *ReadProcess(child.pid);
  const LeftProcesses left = DescribeLeft({&info, 1});
  ASSERT_EQ(left.size(), 1);
  EXPECT_EQ(left[0].command(), "sleep");
  EXPECT_EQ(left[0].state(), "S");
  kill(child.pid, SIGKILL);
  EXPECT_EQ(waitpid(child.pid, nullptr, 0), child.pid);
}

}  // namespace
}  // namespace dslaunch::left_process_test

#include "agent/stacks/thread_states.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/deadline.h"

namespace dslaunch::thread_states_test {
namespace {

TEST(ThreadStatesTest, ParsesStatOfAThread) {
  const auto thread = ParseThreadStat(
      "42 (a b) c) D 1 42 42 0 -1 4194304 100 0 0 0 120 34 0 0 20 0 5 0 1000 1 1\n");
  ASSERT_TRUE(thread);
  EXPECT_EQ(thread->name, "a b) c");
  EXPECT_EQ(thread->state, 'D');
  EXPECT_EQ(thread->ticks, 154u);
  for (const char* text : {"", "42", "42 (x", "42 (x)", "42 )x( S 1"})
    EXPECT_FALSE(ParseThreadStat(text)) << text;
}

TEST(ThreadStatesTest, ParsesSystemCallByName) {
  const std::string futex = std::to_string(SYS_futex);
  EXPECT_EQ(ParseSystemCall(futex + " 0x7ffd 0x80 0x0 0x0 0x0 0x0 0x7ffd 0x7f1\n").name, "futex");
  EXPECT_EQ(ParseSystemCall("4711 0x0\n").name, "system call 4711");
  const SystemCall read = ParseSystemCall(std::to_string(SYS_read) + " 0x1f 0x7ffd 0x80\n");
  EXPECT_EQ(read.name, "read");
  EXPECT_EQ(read.on_fd, 31u);
  EXPECT_TRUE(ParseSystemCall(std::to_string(SYS_munmap) + " 0x1f\n").maps_memory);
  for (const char* text : {"running\n", "-1 0x7ffd 0x7f1\n", "", "\n", "7x 0x0\n"})
    EXPECT_EQ(ParseSystemCall(text).name, "") << text;
}

TEST(ThreadStatesTest, ParsesInnermostKernelFunction) {
  EXPECT_EQ(ParseKernelStack("[<0>] futex_wait_queue+0x60/0x90\n[<0>] do_futex+0x1/0x2\n"),
            "futex_wait_queue");
  EXPECT_EQ(ParseKernelStack(""), "");
}

TEST(ThreadStatesTest, ReadsThreadsOfStoppedProcess) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (write(ready[1], "x", 1) == 1) pause();
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  kill(child, SIGSTOP);
  ThreadStates states;
  const Deadline deadline = Deadline::After(milliseconds(20'000));
  do {
    std::this_thread::sleep_for(milliseconds(5));
    states = ReadThreadStates(child, 10);
  } while (!deadline.Expired() && (states.threads.empty() || states.threads[0].state != 'T'));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  ASSERT_EQ(states.threads.size(), 1u);
  EXPECT_EQ(states.threads[0].state, 'T');
  EXPECT_EQ(states.threads[0].tid, child);
}

TEST(ThreadStatesTest, ReturnsNoThreadsOfAnExitedProcess) {
  EXPECT_TRUE(ReadThreadStates(999'999'999, 10).threads.empty());
}

TEST(ThreadStatesTest, DescribesDescriptors) {
  EXPECT_EQ(DescribeDescriptor("pipe:[12]", true), "a pipe");
  EXPECT_EQ(DescribeDescriptor("socket:[12]", false), "a socket");
  EXPECT_EQ(DescribeDescriptor("/data/a", false), "/data/a");
  EXPECT_EQ(DescribeDescriptor("/tmp/a\x1b[1m", true), "the FIFO /tmp/a");
}

}  // namespace
}  // namespace dslaunch::thread_states_test

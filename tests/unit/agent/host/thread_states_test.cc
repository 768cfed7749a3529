#include "agent/host/thread_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/deadline.h"

namespace dslaunch::thread_states_test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

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
  EXPECT_EQ(ParseSystemCall(futex + " 0x7ffd 0x80 0x0 0x0 0x0 0x0 0x7ffd 0x7f1\n"), "futex");
  EXPECT_EQ(ParseSystemCall("4711 0x0\n"), "system call 4711");
  for (const char* text : {"running\n", "-1 0x7ffd 0x7f1\n", "", "\n", "7x 0x0\n"})
    EXPECT_EQ(ParseSystemCall(text), "") << text;
}

TEST(ThreadStatesTest, ParsesInnermostKernelFunction) {
  EXPECT_EQ(ParseKernelStack("[<0>] futex_wait_queue+0x60/0x90\n[<0>] do_futex+0x1/0x2\n"),
            "futex_wait_queue");
  EXPECT_EQ(ParseKernelStack(""), "");
}

ThreadState Thread(const std::string& name, char state, uint64_t ticks,
                   const std::string& call = "", const std::string& waits_in = "") {
  return {name, state, ticks, call, waits_in};
}

TEST(ThreadStatesTest, GroupsEqualThreadsBusiestFirst) {
  const ProcessThreads process = {
      7,
      "python3",
      {Thread("main", 'S', 100, "futex", "futex_wait"), Thread("worker", 'S', 10, "epoll_wait"),
       Thread("worker", 'S', 20, "epoll_wait"), Thread("spin", 'R', 50)}};
  EXPECT_EQ(DescribeThreads({process}, 10, 100),
            "\n  pid 7, thread spin: running, 0.5 s of CPU time"
            "\n  pid 7, thread main: asleep in futex (futex_wait), 1.0 s of CPU time"
            "\n  pid 7, 2 threads worker: asleep in epoll_wait, 0.3 s of CPU time");
  EXPECT_THAT(DescribeThreads({process}, 1, 100), HasSubstr("\n  and 2 more"));
}

TEST(ThreadStatesTest, NamesStoppedAndUninterruptibleFirst) {
  const std::string stopped = DescribeThreads({{7, "python3", {Thread("main", 'T', 1)}}}, 5, 100);
  EXPECT_THAT(stopped, StartsWith("python3 (pid 7) is stopped (T): kill -CONT 7"));
  const std::string waiting =
      DescribeThreads({{7, "python3", {Thread("main", 'S', 1)}},
                       {8, "loader", {Thread("loader", 'D', 1, "read", "nfs_wait")}}},
                      5, 100);
  EXPECT_THAT(waiting, StartsWith("loader (pid 8) is in an uninterruptible wait (D)"));
  EXPECT_THAT(waiting, HasSubstr("in read (nfs_wait)"));
}

TEST(ThreadStatesTest, ReadsThreadsOfProcessAndChild) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    fork();  // both wait until they are killed
    if (write(ready[1], "x", 1) == 1) pause();
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  kill(child, SIGSTOP);
  std::vector<ProcessThreads> processes;
  const Deadline deadline = Deadline::After(milliseconds(20'000));
  do {
    std::this_thread::sleep_for(milliseconds(5));
    processes = ReadThreads(child);
  } while (!deadline.Expired() &&
           (processes.size() < 2 || processes[0].threads.front().state != 'T'));
  for (const ProcessThreads& process : processes) kill(process.pid, SIGKILL);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ready[0]);
  close(ready[1]);
  ASSERT_EQ(processes.size(), 2u);
  EXPECT_EQ(processes[0].pid, child);
  EXPECT_EQ(processes[0].threads.front().state, 'T');
  EXPECT_EQ(processes[1].threads.size(), 1u);
  EXPECT_THAT(DescribeThreads(processes, 5, sysconf(_SC_CLK_TCK)), HasSubstr("is stopped"));
}

TEST(ThreadStatesTest, ReturnsNoThreadsOfAnExitedProcess) {
  EXPECT_TRUE(ReadThreads(999'999'999).empty());
}

}  // namespace
}  // namespace dslaunch::thread_states_test

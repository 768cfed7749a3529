#include "agent/stacks/process_stacks.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace dslaunch::process_stacks_test {
namespace {

// A child process that waits until it is killed.
class Child {
 public:
  Child() {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    pid_ = fork();
    if (pid_ == 0) {
      if (write(ready[1], "x", 1) == 1) pause();
      _exit(0);
    }
    char byte;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

TEST(StackReaderTest, ReadsKernelStateOfProgramWithoutPython) {
  const Child child;
  StackReader reader;
  const auto stacks = reader.Read(*ReadProcess(child.pid()));
  ASSERT_TRUE(stacks);
  EXPECT_EQ(stacks->python, "");
  EXPECT_EQ(stacks->no_python, "");
  ASSERT_EQ(stacks->threads.size(), 1u);
  EXPECT_EQ(stacks->threads[0].kernel.tid, child.pid());
  EXPECT_TRUE(stacks->threads[0].python.frames.empty());
}

TEST(StackReaderTest, ReturnsNothingForAnotherProcessOfThatPid) {
  const Child child;
  ProcessInfo other = *ReadProcess(child.pid());
  ++other.id.start_ticks;
  EXPECT_EQ(StackReader().Read(other), std::nullopt);
}

TEST(StackReaderTest, ExplainsRefusalByYama) {
  EXPECT_NE(ReadRefusal("2\n").find("ptrace_scope is 2, so only root may"), std::string::npos);
  EXPECT_NE(ReadRefusal("3\n").find("ptrace_scope is 3, so no process may"), std::string::npos);
  for (const char* scope : {"0\n", "1\n", ""})
    EXPECT_NE(ReadRefusal(scope).find("set-user-ID"), std::string::npos) << scope;
}

TEST(ProcessMemoryTest, StopsAtItsLimits) {
  static const volatile uint64_t value = 42;
  // The child is a fork, so the value has the same address in it.
  const auto address = reinterpret_cast<uint64_t>(&value);
  const Child child;
  ProcessMemory memory(child.pid(), {.bytes = 20});
  EXPECT_EQ(memory.ReadValue<uint64_t>(address), 42u);
  EXPECT_EQ(memory.ReadValue<uint64_t>(8), std::nullopt) << "nothing is mapped there";
  EXPECT_FALSE(memory.exhausted());
  EXPECT_EQ(memory.ReadValue<uint64_t>(address), std::nullopt);
  EXPECT_TRUE(memory.exhausted());
  ProcessMemory no_time(child.pid(), {.cpu_time = std::chrono::microseconds(-1)});
  EXPECT_EQ(no_time.ReadValue<uint64_t>(address), std::nullopt);
  EXPECT_TRUE(no_time.exhausted());
}

TEST(ProcessMemoryTest, ReadingLeavesProcessRunning) {
  const Child child;
  StackReader reader;
  for (int i = 0; i < 1'000; ++i) reader.Read(*ReadProcess(child.pid()));
  EXPECT_EQ(ReadProcess(child.pid())->state, 'S');
  int status = 0;
  EXPECT_EQ(waitpid(child.pid(), &status, WNOHANG | WUNTRACED), 0) << "it was never stopped";
}

}  // namespace
}  // namespace dslaunch::process_stacks_test

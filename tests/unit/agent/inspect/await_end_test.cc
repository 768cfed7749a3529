#include "agent/inspect/await_end.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os/subprocess.h"

namespace dslaunch::await_end_test {
namespace {

TEST(AwaitEndTest, StartRunsWhileAProcessHasItsNonce) {
  EXPECT_FALSE(RunsStart("5eed0001"));
  SpawnSpec spec;
  spec.executable = "/bin/sh";
  spec.argv = {"sh", "-c", "read -r _; read -r _", "supervisor", "--nonce", "5eed0001"};
  int pipe_ends[2];
  ASSERT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
  spec.stdin_fd = pipe_ends[0];
  const SpawnResult started = Spawn(spec);
  ASSERT_GT(started.pid, 0);
  EXPECT_TRUE(RunsStart("5eed0001"));
  EXPECT_FALSE(RunsStart("5eed000"));
  EXPECT_FALSE(RunsStart("eed0001"));
  ::kill(started.pid, SIGKILL);
  siginfo_t ended{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(started.pid), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_FALSE(RunsStart("5eed0001"));  // a zombie does not count as running
  ::waitpid(started.pid, nullptr, 0);
}

}  // namespace
}  // namespace dslaunch::await_end_test

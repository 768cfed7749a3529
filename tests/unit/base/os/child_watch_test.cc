#include "base/os/child_watch.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <csignal>

#include "base/os/subprocess.h"
#include "tests/support/deny_syscalls.h"

namespace dslaunch::child_watch_test {
namespace {

using Ms = milliseconds;

// Returns whether a ChildWatch reports a child as running, and then as ended in time.
bool SeesAChildEnd() {
  const SpawnResult spawned = Spawn({.executable = "/bin/sleep", .argv = {"sleep", "600"}});
  if (spawned.pid <= 0) return false;
  const ChildWatch watch(spawned.pid);
  const bool lived = !watch.Ended() && !watch.AwaitEnd(Deadline::After(Ms(50)));
  kill(spawned.pid, SIGKILL);
  const bool ended = watch.AwaitEnd(Deadline::After(Ms(20'000))) && watch.Ended();
  const bool was_there = waitpid(spawned.pid, nullptr, 0) == spawned.pid;
  return lived && ended && was_there && watch.Ended();
}

TEST(ChildWatch, SeesExitWithoutReaping) { EXPECT_TRUE(SeesAChildEnd()); }

// pidfds are refused with EPERM by Docker's older seccomp profile, and are missing (ENOSYS) in
// Linux before 5.3.
TEST(ChildWatch, WorksWithoutPidfd) {
  for (const int error_number : {EPERM, ENOSYS})
    EXPECT_TRUE(HoldsWithout({SYS_pidfd_open, SYS_pidfd_send_signal}, error_number, SeesAChildEnd));
}

}  // namespace
}  // namespace dslaunch::child_watch_test

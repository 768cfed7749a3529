// A program that the front end runs on its own machine, with a socket to its stdin and stdout.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/os/child_watch.h"
#include "base/unique_fd.h"
#include "cli/transport/running_program.h"

namespace dslaunch {

// In a session of its own: Ctrl-C at the terminal is for dslaunch alone. Ended with SIGKILL and
// reaped on destruction, unless it was left running.
class ChildProcess : public RunningProgram {
 public:
  // Whether it gets SIGTERM when this process ends, however it ends.
  enum class Fate { kOnItsOwn, kEndsWithUs };

  // `argv[0]` is the absolute path of the program. The error is what went wrong, to be put into a
  // sentence: "execve: Permission denied".
  // `pass_fd`: one of SpawnSpec's pass_fds; -1: none.
  static Result<std::unique_ptr<ChildProcess>> Start(const std::vector<std::string>& argv,
                                                     Fate fate, int pass_fd = -1);

  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess() override;

  UniqueFd TakeStream() override { return std::move(stream_); }
  void ShutStream() override;
  void LeaveStream() override;

  // Reaps it.
  std::optional<int> WaitEnd(Deadline deadline) override;

  // To the program alone, or to all of its group, if it has not been reaped.
  void Signal(int signal_number);
  void SignalGroup(int signal_number);
  void KillGroup() override { SignalGroup(SIGKILL); }

  void LeaveRunning() override { left_running_ = true; }
  bool is_left_running() const override { return left_running_; }
  std::string StderrTail(size_t max_bytes = 4096) const override;

 private:
  ChildProcess(pid_t pid, UniqueFd stream, UniqueFd stderr_file);

  mutable Mutex mutex_;
  const pid_t pid_;
  std::atomic<bool> left_running_ = false;
  bool reaped_ DSL_GUARDED_BY(mutex_) = false;
  int status_ DSL_GUARDED_BY(mutex_) = 0;  // once reaped_
  const ChildWatch watch_;
  UniqueFd stream_;
  UniqueFd watchdog_ DSL_GUARDED_BY(mutex_);  // the stream again
  const UniqueFd stderr_file_;
};

// Starts programs on this machine, which end with this process.
class LocalStarter : public ProgramStarter {
 public:
  Result<std::unique_ptr<RunningProgram>> Start(const std::vector<std::string>& argv) override {
    DSL_TRY_ASSIGN(std::unique_ptr<RunningProgram> child,
                   ChildProcess::Start(argv, ChildProcess::Fate::kEndsWithUs));
    return child;
  }
};

// "exit status 3", "killed by SIGTERM": of waitpid's status.
std::string EndInWords(int wait_status);

// Runs a program to its end with nothing on its stdin. Its stdout; errors are for a sentence that
// names what it was for: "... ended with exit status 255; it said: ...". More than `max_bytes` are
// cut off. `said`, if any, gets what it wrote to stderr, as much at most.
Result<std::string> RunForOutput(const std::vector<std::string>& argv, Deadline deadline,
                                 size_t max_bytes = 1 << 20, std::string* said = nullptr);

}  // namespace dslaunch

// Runs a program on the front end's machine, with a socket as its stdin and stdout.
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

// A child process in a separate session, so that Ctrl-C at the terminal reaches only dslaunch. The
// destructor kills it with SIGKILL and reaps it, unless LeaveRunning was called.
class ChildProcess : public RunningProgram {
 public:
  // The fate of the program when this process ends in any way. kEndsWithUs sends SIGTERM to the
  // program.
  enum class Fate { kOnItsOwn, kEndsWithUs };

  // Starts a program; `argv[0]` is its absolute path. `pass_fd` is a descriptor that the program
  // inherits (see SpawnSpec::pass_fds); -1 for none. The error is a fragment of a sentence:
  // "execve: Permission denied".
  static Result<std::unique_ptr<ChildProcess>> Start(const std::vector<std::string>& argv,
                                                     Fate fate, int pass_fd = -1);

  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess() override;

  UniqueFd TakeStream() override { return std::move(stream_); }
  void ShutStream() override;
  void ReleaseStream() override;

  // Waits for the program's end as RunningProgram::WaitEnd does, and reaps the program.
  std::optional<int> WaitEnd(Deadline deadline) override;

  // Sends a signal to the program. Does nothing once the program was reaped.
  void Signal(int signal_number);

  // Sends a signal to the program's process group. Does nothing once the program was reaped.
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
  int status_ DSL_GUARDED_BY(mutex_) = 0;  // the wait status; valid if reaped_
  const ChildWatch watch_;
  UniqueFd stream_;
  UniqueFd watchdog_ DSL_GUARDED_BY(mutex_);  // duplicate of stream_, used to shut the stream down
  const UniqueFd stderr_file_;
};

// Starts programs on this machine that get SIGTERM when this process ends.
class LocalStarter : public ProgramStarter {
 public:
  Result<std::unique_ptr<RunningProgram>> Start(const std::vector<std::string>& argv) override {
    DSL_TRY_ASSIGN(std::unique_ptr<RunningProgram> child,
                   ChildProcess::Start(argv, ChildProcess::Fate::kEndsWithUs));
    return child;
  }
};

// Describes a wait status in words: "exit status 3", "killed by SIGTERM".
std::string EndInWords(int wait_status);

// Runs a program to its end with an empty stdin and returns its stdout, cut to `max_bytes`. Stores
// its stderr, cut likewise, in `printed` unless that is null. The error is a fragment of a sentence
// whose subject is the purpose of the program: "... ended with exit status 255; it printed: ...".
Result<std::string> RunForOutput(const std::vector<std::string>& argv, Deadline deadline,
                                 size_t max_bytes = 1 << 20, std::string* printed = nullptr);

}  // namespace dslaunch

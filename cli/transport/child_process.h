// A program that the front end runs on its own machine, with a socket to its stdin and stdout.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/child_watch.h"
#include "base/deadline.h"
#include "base/error.h"
#include "base/mutex.h"
#include "base/unique_fd.h"

namespace dslaunch {

// The absolute path of a program: `name` itself where it has a slash, else as PATH says; empty when
// there is none. Elements of PATH that are relative, or empty, are left out: nothing is run because
// of the folder that the user stands in.
std::string FindProgram(const std::string& name);

// In a session of its own: Ctrl-C at the terminal is for dslaunch alone. Thread-safe but for
// TakeStream. Ended with SIGKILL and reaped on destruction, unless it was left running.
class ChildProcess {
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
  ~ChildProcess();

  // Our end of the socket. Once.
  UniqueFd TakeStream() { return std::move(stream_); }

  // Shuts the stream, also after it was taken: the program sees end of file.
  void ShutStream();

  // Waits for its end; reaps it. The status is waitpid's; nullopt when the deadline came first.
  std::optional<int> WaitEnd(Deadline deadline);

  // To the program alone, or to all of its group, if it has not been reaped.
  void Signal(int signal_number);
  void SignalGroup(int signal_number);

  // It outlives this object.
  void LeaveRunning() { left_running_ = true; }
  bool is_left_running() const { return left_running_; }

  // The last `max_bytes` of what it wrote to stderr so far.
  std::string StderrTail(size_t max_bytes = 4096) const;

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

// "exit status 3", "killed by SIGTERM": of waitpid's status.
std::string EndInWords(int wait_status);

// Runs a program to its end with nothing on its stdin. Its stdout; errors are for a sentence that
// names what it was for: "... ended with exit status 255; it said: ...". More than `max_bytes` are
// cut off.
Result<std::string> RunForOutput(const std::vector<std::string>& argv, Deadline deadline,
                                 size_t max_bytes = 1 << 20);

}  // namespace dslaunch

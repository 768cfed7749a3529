// A program that connects stdin and stdout to a node: on this machine, or on a relay's.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/unique_fd.h"

namespace dslaunch {

// In a session and a process group of its own. Thread-safe but for TakeStream. Killed on
// destruction, unless it was left running.
class RunningProgram {
 public:
  virtual ~RunningProgram() = default;

  // Our end of the socket to its stdin and stdout. Once.
  virtual UniqueFd TakeStream() = 0;

  // Shuts the stream, also after it was taken: the program sees end of file.
  virtual void ShutStream() = 0;
  // From now on its end is for who has taken it: ShutStream does nothing.
  virtual void LeaveStream() = 0;

  // Waits for its end. The status is waitpid's; nullopt when the deadline came first, or when its
  // end can no longer be known.
  virtual std::optional<int> WaitEnd(Deadline deadline) = 0;

  // SIGKILL to all of its group, if it has not ended.
  virtual void KillGroup() = 0;

  // It outlives this object.
  virtual void LeaveRunning() = 0;
  virtual bool is_left_running() const = 0;

  // The last `max_bytes` of what it wrote to stderr so far.
  virtual std::string StderrTail(size_t max_bytes = 4096) const = 0;
};

// Where such programs are started.
class ProgramStarter {
 public:
  virtual ~ProgramStarter() = default;

  // The error is what went wrong, to be put into a sentence: "execve: Permission denied".
  virtual Result<std::unique_ptr<RunningProgram>> Start(const std::vector<std::string>& argv) = 0;

  // The same for a program whose stdin is the agent's file, where the starter has it at hand;
  // nullptr: it has not.
  virtual Result<std::unique_ptr<RunningProgram>> StartReadingAgent(
      const std::vector<std::string>& /*argv*/) {
    return std::unique_ptr<RunningProgram>();
  }

  // Where programs run, for messages: " on node1"; empty: on this machine.
  virtual std::string Where() const { return ""; }
};

}  // namespace dslaunch

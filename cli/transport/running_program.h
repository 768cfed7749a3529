// Declares a program whose stdin and stdout lead to a node. It runs on this machine or on a relay.
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

// A running program in a separate session and process group. The destructor kills it, unless
// LeaveRunning was called. Thread-safe except for TakeStream.
class RunningProgram {
 public:
  virtual ~RunningProgram() = default;

  // Returns this process's end of the socket that is the program's stdin and stdout. Call it once.
  virtual UniqueFd TakeStream() = 0;

  // Shuts the stream down, even after TakeStream; the program then reads end of file.
  virtual void ShutStream() = 0;
  // Makes ShutStream a no-op, because from now on the owner of the stream ends it.
  virtual void ReleaseStream() = 0;

  // Waits for the program's end and returns its wait status. Returns nullopt if the deadline passes
  // first, or if the status can no longer be determined.
  virtual std::optional<int> WaitEnd(Deadline deadline) = 0;

  // Sends SIGKILL to the program's process group if the program has not ended.
  virtual void KillGroup() = 0;

  // Makes the destructor leave the program running.
  virtual void LeaveRunning() = 0;
  virtual bool is_left_running() const = 0;

  // Returns the last `max_bytes` of the stderr that the program has written so far.
  virtual std::string StderrTail(size_t max_bytes = 4096) const = 0;
};

// Starts programs on this machine or on a relay.
class ProgramStarter {
 public:
  virtual ~ProgramStarter() = default;

  // Starts a program. The error is a fragment of a sentence: "execve: Permission denied".
  virtual Result<std::unique_ptr<RunningProgram>> Start(const std::vector<std::string>& argv) = 0;

  // Starts a program whose stdin is the agent's file. Returns nullptr if the starter does not have
  // the file.
  virtual Result<std::unique_ptr<RunningProgram>> StartReadingAgent(
      const std::vector<std::string>& /*argv*/) {
    return std::unique_ptr<RunningProgram>();
  }

  // Returns the location of the programs for messages, such as " on node1"; empty for this machine.
  virtual std::string Where() const { return ""; }
};

}  // namespace dslaunch

// A program whose stdin and stdout lead to a node, on this machine or on a relay.
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

// Runs in a separate session and process group. Thread-safe except for TakeStream. Killed on
// destruction, unless LeaveRunning was called.
class RunningProgram {
 public:
  virtual ~RunningProgram() = default;

  // Returns our end of the socket that is the program's stdin and stdout. Call it once.
  virtual UniqueFd TakeStream() = 0;

  // Shuts the stream down, even after TakeStream; the program sees end of file.
  virtual void ShutStream() = 0;
  // Makes ShutStream a no-op, because the owner of the stream ends it.
  virtual void ReleaseStream() = 0;

  // Waits for the program's end and returns its wait status; nullopt if the deadline passed first,
  // or if the end cannot be known any more.
  virtual std::optional<int> WaitEnd(Deadline deadline) = 0;

  // Sends SIGKILL to the program's group if the program has not ended.
  virtual void KillGroup() = 0;

  // Lets the program outlive this object.
  virtual void LeaveRunning() = 0;
  virtual bool is_left_running() const = 0;

  // Returns the last `max_bytes` of the program's stderr so far.
  virtual std::string StderrTail(size_t max_bytes = 4096) const = 0;
};

// Starts such programs.
class ProgramStarter {
 public:
  virtual ~ProgramStarter() = default;

  // Starts a program. The error is a fragment of a sentence: "execve: Permission denied".
  virtual Result<std::unique_ptr<RunningProgram>> Start(const std::vector<std::string>& argv) = 0;

  // Starts a program with the agent's file as stdin. Returns nullptr if the starter does not have
  // the file.
  virtual Result<std::unique_ptr<RunningProgram>> StartReadingAgent(
      const std::vector<std::string>& /*argv*/) {
    return std::unique_ptr<RunningProgram>();
  }

  // Returns where programs run, for messages: " on node1"; empty for this machine.
  virtual std::string Where() const { return ""; }
};

}  // namespace dslaunch

// Finds the agent's hello line in a byte stream that may begin with the output of a login shell.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"

namespace dslaunch {

// The beginning of the line `DSLAUNCH-MACHINE <nonce> <uname -m>\n`. A start script that chooses
// among agents prints this line before the hello line.
inline constexpr std::string_view kMachineMagic = "DSLAUNCH-MACHINE ";

// Scans a stream for the hello line. Pass the stream's bytes to Feed until the state is kFound or
// kFailed. Not thread-safe. Performs no I/O.
class HelloScanner {
 public:
  enum class State { kNeedMore, kFound, kFailed };

  // Searches for a line with `nonce`, with which the agent was started; hello lines with a
  // different nonce are skipped.
  explicit HelloScanner(std::string_view nonce);

  // Scans further bytes and returns the new state. Does nothing after kFound or kFailed.
  State Feed(std::string_view bytes);

  // Returns the agent's build id. Valid after kFound.
  const std::string& build_id() const { return build_id_; }
  // Returns the bytes after the hello line. Valid after kFound.
  const std::string& leftover() const { return leftover_; }

  // Returns the cause of the failure for an error message. Valid after kFailed.
  const std::string& reason() const { return reason_; }

  // Returns the node's machine type if the start script printed it, otherwise an empty string.
  std::string Machine() const;

  // Returns the text before the hello line, or all text if no hello line was found. The text is
  // printable, on one line, at most 512 bytes, and omits the machine type's line.
  std::string Skipped() const;

  static constexpr size_t kMaxNoiseBytes = 64 * 1024;

 private:
  State Fail(std::string reason);
  // Returns the position and size of the machine type's line in buffer_; nullopt if the line is
  // missing.
  std::optional<std::pair<size_t, size_t>> MachineLine() const;

  State state_ = State::kNeedMore;
  std::string prefix_;          // magic of the hello line, nonce and space
  std::string machine_prefix_;  // magic of the machine type's line, nonce and space
  std::string buffer_;  // all bytes so far; once the prefix was found, only the bytes before it
  std::string line_;    // bytes of the build id received so far
  bool in_line_ = false;
  std::string build_id_;
  std::string leftover_;
  std::string reason_;
};

// Reads from a socket up to the end of the hello line and not one byte further. The error is a
// fragment of a sentence: "did not send its hello line in time".
Result<void> AwaitHello(int stream, HelloScanner& scanner, Deadline deadline);

// Returns 128 random bits in lower-case hex, a nonce that ties a hello line to one start.
std::string MakeNonce();

// Returns the first `max_bytes` of `text` in a form fit for an error message: each run of bytes
// that are not printable ASCII becomes one space.
std::string OneLine(std::string_view text, size_t max_bytes);

// Returns "; it printed: " followed by the command's stderr and by its stdout `noise`; empty if
// both are empty.
std::string OutputClause(std::string_view stderr_tail, const std::string& noise = "");

}  // namespace dslaunch

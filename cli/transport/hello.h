// Finds the agent's hello line in a byte stream to which a login shell may have written first.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"

namespace dslaunch {

// A start script that chooses among agents prints `DSLAUNCH-MACHINE <nonce> <uname -m>\n` first.
inline constexpr std::string_view kMachineMagic = "DSLAUNCH-MACHINE ";

// Feed it the bytes of the stream until it has found the line or failed. Pure. Not thread-safe.
class HelloScanner {
 public:
  enum class State { kNeedMore, kFound, kFailed };

  // `nonce` is the one with which the agent was started; lines with another one are skipped.
  explicit HelloScanner(std::string_view nonce);

  // Adds bytes; ignored after kFound or kFailed.
  State Feed(std::string_view bytes);

  // Valid after kFound.
  const std::string& build_id() const { return build_id_; }
  const std::string& leftover() const { return leftover_; }  // the bytes after the line

  // Valid after kFailed: why, for an error message.
  const std::string& reason() const { return reason_; }

  // Returns the node's machine type if the start script printed it, otherwise an empty string.
  std::string Machine() const;

  // Returns the text before the line, or in its place, without the machine type: printable, on one
  // line, at most 512 bytes.
  std::string Skipped() const;

  static constexpr size_t kMaxNoiseBytes = 64 * 1024;

 private:
  State Fail(std::string reason);
  // Position and size of the machine's line in buffer_; nullopt if it is not there.
  std::optional<std::pair<size_t, size_t>> MachineLine() const;

  State state_ = State::kNeedMore;
  std::string prefix_;          // magic, nonce and space
  std::string machine_prefix_;  // likewise, of the machine's line
  std::string buffer_;  // all bytes so far; once the prefix was found, only the skipped ones
  std::string line_;    // the build id, as far as received
  bool in_line_ = false;
  std::string build_id_;
  std::string leftover_;
  std::string reason_;
};

// Reads from a socket up to the end of the hello line and not one byte further. The error is a
// fragment: "did not send its hello line in time".
Result<void> AwaitHello(int stream, HelloScanner& scanner, Deadline deadline);

// Returns 128 random bits in lower-case hex, which tie a hello line to one start.
std::string MakeNonce();

// Makes the first `max_bytes` of `text` fit for an error message: each run of bytes that are not
// printable ASCII becomes one space.
std::string OneLine(std::string_view text, size_t max_bytes);

// Returns "; it printed: " followed by the command's stderr and by `noise`, its stdout; empty if
// both are.
std::string OutputClause(std::string_view stderr_tail, const std::string& noise = "");

}  // namespace dslaunch

// Finds the agent's hello line in a byte stream that a login shell may have written to first.
#pragma once

#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/error.h"

namespace dslaunch {

// Feed it what the stream delivers until it has found the line or failed. Not thread-safe, no input
// or output.
class HelloScanner {
 public:
  enum class State { kNeedMore, kFound, kFailed };

  // `nonce` is what the agent was started with: a line with another one is noise.
  explicit HelloScanner(std::string_view nonce);

  // After kFound or kFailed further bytes are ignored.
  State Feed(std::string_view bytes);

  // After kFound.
  const std::string& build_id() const { return build_id_; }
  const std::string& leftover() const { return leftover_; }  // what followed the line

  // After kFailed: why, for an error message.
  const std::string& reason() const { return reason_; }

  // What came before the line, or came instead of it: printable, on one line, 512 bytes at most.
  std::string Skipped() const;

  static constexpr size_t kMaxNoiseBytes = 64 * 1024;

 private:
  State Fail(std::string reason);

  State state_ = State::kNeedMore;
  std::string prefix_;  // magic, nonce, space
  std::string buffer_;  // all that came so far; after the prefix was seen only what was skipped
  std::string line_;    // the build id as far as it came
  bool in_line_ = false;
  std::string build_id_;
  std::string leftover_;
  std::string reason_;
};

// Reads from a socket up to the end of the hello line and not one byte further. The error is a
// fragment: "did not send its hello line in time".
Result<void> AwaitHello(int stream, HelloScanner& scanner, Deadline deadline);

// 128 random bits in lower-case hex: ties a hello line to the one start it answers.
std::string MakeNonce();

// The first `max_bytes` of `text` fit for an error message: each run of other bytes than printable
// ASCII is one space.
std::string OneLine(std::string_view text, size_t max_bytes);

// "; it said: " with what a command wrote to stderr and, as noise, to stdout; empty if nothing.
std::string ItSaid(std::string_view stderr_tail, const std::string& noise = "");

}  // namespace dslaunch

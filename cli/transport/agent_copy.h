// Copies the agent to a node that lacks it: the data to send, the answers of the node's script, and
// the limit of concurrent copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "base/mutex.h"
#include "cli/transport/agent_binary.h"

namespace dslaunch {

// A copy is aborted when no byte was sent for kCopyStall, and after kCopyLimit in any case. The
// time of a copy does not count as time to connect.
inline constexpr milliseconds kCopyStall{30'000};
inline constexpr milliseconds kCopyLimit{15 * 60'000};
inline constexpr milliseconds kCopyEnd{60'000};    // limit for bytes in transit and the node's disk
inline constexpr milliseconds kCopyTurnPoll{100};  // interval at which CopyGate is polled

// The agent file as it is sent.
struct PackedAgent {
  std::string gzip;    // content of the file, compressed
  std::string sha256;  // SHA-256 of the uncompressed file, lower-case hex
};

// Reads and compresses the file in pieces, once per process; later calls for the same build share
// the result. Errors are kIo. Thread-safe.
Result<std::shared_ptr<const PackedAgent>> PackAgent(const AgentBinary& agent);

// Returns the uncompressed file for nodes without gzip, read on the first call. Errors are kIo.
// Thread-safe.
Result<std::shared_ptr<const std::string>> RawAgent(const AgentBinary& agent);

// Parses what the install script (InstallScript in agent_scripts.h) writes to stdout, possibly
// after the output of a login shell. Pure.
class CopyDialog {
 public:
  enum class State {
    kWaiting,   // more must be read; another copy to the same folder may be running
    kSendGzip,  // send PackedAgent::gzip and end the stream
    kSendRaw,   // the node has no gzip: send RawAgent
    kHave,      // the agent is already there: send nothing
  };

  // `nonce` is the one in the script; lines with another one are ignored.
  explicit CopyDialog(std::string_view nonce);

  State Feed(std::string_view bytes);

  static constexpr size_t kMaxLineBytes = 4096;  // longer text without a line end is ignored

 private:
  const std::string prefix_;
  std::string line_;
  State state_ = State::kWaiting;
};

// Bounds the number of concurrent copies, because more would only slow each other down.
// Thread-safe.
class CopyGate {
 public:
  static constexpr size_t kAtOnce = 8;

  // A copy in progress, until destroyed. Must not outlive the gate.
  class Turn {
   public:
    explicit Turn(CopyGate* gate) : gate_(gate) {}
    Turn(Turn&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn();

   private:
    CopyGate* gate_;
  };

  // Returns the gate of this process, which is never destroyed.
  static CopyGate& Shared();

  // Returns nullopt while kAtOnce copies are in progress.
  std::optional<Turn> TryEnter();

 private:
  Mutex mutex_;
  size_t running_ DSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace dslaunch

// Copies the agent to a node that lacks it. Provides the data to send, a parser for the answers of
// the node's script, and a limit of concurrent copies.
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

// Time without a sent byte after which a copy is aborted. The time of a copy does not count as time
// to connect.
inline constexpr milliseconds kCopyStall{30'000};
inline constexpr milliseconds kCopyLimit{15 * 60'000};  // longest duration of a copy
inline constexpr milliseconds kCopyEnd{60'000};    // limit for bytes in transit and the node's disk
inline constexpr milliseconds kCopyTurnPoll{100};  // interval at which CopyGate is polled

// The content of an agent file in the form in which it is sent to nodes.
struct PackedAgent {
  std::string gzip;    // compressed content of the file
  std::string sha256;  // SHA-256 of the uncompressed file, lower-case hex
};

// Reads and compresses the agent's file in pieces, once per process; later calls for the same build
// share the result. Returns kIo if the file cannot be read. Thread-safe.
Result<std::shared_ptr<const PackedAgent>> PackAgent(const AgentBinary& agent);

// Returns the uncompressed file for nodes without gzip; the first call reads the file. Returns kIo
// if the file cannot be read. Thread-safe.
Result<std::shared_ptr<const std::string>> RawAgent(const AgentBinary& agent);

// Parses the output of the install script (InstallScript in agent_scripts.h), which may follow the
// output of a login shell. Has no side effects.
class CopyDialog {
 public:
  enum class State {
    kWaiting,   // no request yet; another copy to the same folder may be running
    kSendGzip,  // the node has gzip: send PackedAgent::gzip and end the stream
    kSendRaw,   // the node has no gzip: send RawAgent and end the stream
    kHave,      // the node already has the agent: send nothing
  };

  // Searches for lines with `nonce`, the nonce in the script; lines with a different nonce are
  // ignored.
  explicit CopyDialog(std::string_view nonce);

  // Parses further output of the script and returns the new state.
  State Feed(std::string_view bytes);

  static constexpr size_t kMaxLineBytes = 4096;  // longer text without a line end is discarded

 private:
  const std::string prefix_;
  std::string line_;
  State state_ = State::kWaiting;
};

// Bounds the number of concurrent copies, because more copies would only slow each other down.
// Thread-safe.
class CopyGate {
 public:
  static constexpr size_t kAtOnce = 8;  // largest number of concurrent copies

  // Represents a copy in progress and counts as running until destroyed. Must not outlive the gate.
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

  // Starts a copy. Returns nullopt if kAtOnce copies are already in progress.
  std::optional<Turn> TryEnter();

 private:
  Mutex mutex_;
  size_t running_ DSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace dslaunch

// The copy of the agent to a node that lacks it: what travels, what the node's script answers, and
// how many copies run at once.
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

// A copy ends when no byte leaves for so long, and after kCopyLimit whatever moves. The time of a
// copy does not count as time to connect.
inline constexpr milliseconds kCopyStall{30'000};
inline constexpr milliseconds kCopyLimit{15 * 60'000};
inline constexpr milliseconds kCopyEnd{60'000};    // the last bytes under way, and the node's disk
inline constexpr milliseconds kCopyTurnPoll{100};  // of CopyGate

// An agent file as it travels.
struct PackedAgent {
  std::string gzip;    // the file compressed
  std::string sha256;  // of the file, lower-case hex
};

// Reads and compresses the file once in a process, without holding all of it; later calls for the
// same build share the result. kIo. Thread-safe.
Result<std::shared_ptr<const PackedAgent>> PackAgent(const AgentBinary& agent);

// The file as it is, for nodes that have no gzip: read for the first of them. kIo. Thread-safe.
Result<std::shared_ptr<const std::string>> RawAgent(const AgentBinary& agent);

// Reads what the install script (InstallScript in ssh_bootstrap.h) writes to stdout. A login shell
// may have written to it before. Pure.
class CopyDialog {
 public:
  enum class State {
    kWaiting,   // more must be read; another copy to the same folder may be running
    kSendGzip,  // send PackedAgent::gzip and end the stream
    kSendRaw,   // the node has no gzip: send RawAgent
    kHave,      // the agent is there already: nothing is to be sent
  };

  // `nonce` is what the script was made with: a line with another one is noise.
  explicit CopyDialog(std::string_view nonce);

  State Feed(std::string_view bytes);

  static constexpr size_t kMaxLineBytes = 4096;  // more without a line's end is noise

 private:
  const std::string prefix_;
  std::string line_;
  State state_ = State::kWaiting;
};

// Bounds the number of copies that run at once: more would only make each slower. Thread-safe.
class CopyGate {
 public:
  static constexpr size_t kAtOnce = 8;

  // A copy under way, until destroyed. Must not outlive the gate.
  class Turn {
   public:
    explicit Turn(CopyGate* gate) : gate_(gate) {}
    Turn(Turn&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn();

   private:
    CopyGate* gate_;
  };

  // The one that this process's copies share. Never destroyed.
  static CopyGate& Shared();

  // nullopt while kAtOnce are under way.
  std::optional<Turn> TryEnter();

 private:
  Mutex mutex_;
  size_t running_ DSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace dslaunch

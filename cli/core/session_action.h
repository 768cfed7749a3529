// The actions of a session's core. LaunchSession carries them out on sockets and a terminal, the
// simulator on its virtual network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "base/deadline.h"
#include "cli/request/launch_options.h"
#include "proto/agent.pb.h"

namespace dslaunch {

enum class SessionTimer { kConnect, kRenew, kWatch, kTeardown };
inline constexpr size_t kSessionTimers = 4;

// `node` is an index into the plan's nodes throughout.
namespace action {

// Shows the user a line of dslaunch's own. Only what the log level asks for is made.
struct Log {
  LogLevel level;
  std::string text;
};

// Adds to events.jsonl. `text` is the job's folder on the node, a message, or a signal's name.
struct Record {
  enum class Kind { kConnected, kFailed, kLost, kInterrupted };
  Kind kind;
  size_t node;  // node of the event; unused for kInterrupted
  std::string text;
};

// The output of so many ranks is shown from now on.
struct ShowRanks {
  size_t ranks;
};

// Reaches a node, which OnConnected answers. `attempt` 0: at once; else after the pause that
// follows so many attempts (PauseAfter, of attempt - 1).
struct Connect {
  size_t node;
  int attempt;
};

// No node is reached any more: pauses end without an attempt.
struct StopConnecting {};

// Answered by OnPrepared. The credentials are still to be added.
struct Prepare {
  size_t node;
  pb::PrepareRequest request;
};

// Begins the stream of the node's events: OnListening, OnEvent, OnStreamEnd.
struct Run {
  size_t node;
  pb::RunRequest request;
};

// Renews the node's lease; answered by OnRenewed.
struct Renew {
  size_t node;
  std::optional<uint64_t> last_seen_us;
  milliseconds timeout;
};

// Answered by OnFailoverAnswered, within kCallTimeout.
struct Failover {
  size_t node;
  pb::FailoverRequest request;
};

// Their answers are not awaited.
struct Stop {
  size_t node;
  pb::Cause cause;
  bool kill_now;
};
struct Signal {
  size_t node;
  int signal_number;
};

// Shows where the threads of these nodes' ranks are. Not answered.
struct ShowStacks {
  std::vector<size_t> nodes;
};

// Answered by OnDetached.
struct Detach {
  size_t node;
};

// Closes our end of the connection: a supervisor with nothing left to do ends, any other tears its
// node down.
struct Goodbye {
  size_t node;
};

// The connection ends at once, in both directions; calls that wait for an answer fail.
struct Abort {
  size_t node;
  std::string why;
};

// Answered by OnLinkEnded, when the supervisor has ended, its connection is lost or `limit` is
// over.
struct AwaitEnd {
  size_t node;
  milliseconds limit;
};

// Shows no more output of ranks, and does not wait for it: the reader of this process's output
// stalls, and the reports of the nodes wait behind it.
struct DropOutput {};

// Replaces what the timer was set to; answered by On...Timer.
struct SetTimer {
  SessionTimer timer;
  Clock::time_point when;
};

// The session is over; SessionCore::End has the result. The last action.
struct Finish {};

}  // namespace action

using SessionAction =
    std::variant<action::Log, action::Record, action::ShowRanks, action::Connect,
                 action::StopConnecting, action::Prepare, action::Run, action::Renew,
                 action::Failover, action::Stop, action::Signal, action::ShowStacks, action::Detach,
                 action::Goodbye, action::Abort, action::AwaitEnd, action::DropOutput,
                 action::SetTimer, action::Finish>;

}  // namespace dslaunch

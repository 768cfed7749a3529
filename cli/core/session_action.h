// The actions of a session's core. LaunchSession carries them out on sockets and a terminal; the
// simulator carries them out on its virtual network.
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

// `node` is always an index into the plan's nodes.
namespace action {

// Shows the user a line of dslaunch's own. Made only if the log level includes it.
struct Log {
  LogLevel level;
  std::string text;
};

// Adds a line to events.jsonl. `text` is the job's folder on the node, a message, or a signal's
// name.
struct Record {
  enum class Kind { kConnected, kFailed, kLost, kInterrupted };
  Kind kind;
  size_t node;  // node of the event; unused for kInterrupted
  std::string text;
};

// Shows the output of this many ranks from now on.
struct ShowRanks {
  size_t ranks;
};

// Connects to a node; answered by OnConnected. `attempt` 0: at once; else after the pause that
// follows that many attempts (PauseAfter with attempt - 1).
struct Connect {
  size_t node;
  int attempt;
};

// Stops connecting: pending pauses end without an attempt.
struct StopConnecting {};

// Prepares a node; answered by OnPrepared. The credentials are added later.
struct Prepare {
  size_t node;
  pb::PrepareRequest request;
};

// Starts the stream of the node's events: OnListening, OnEvent, OnStreamEnd.
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

// Sends a node the request for a failover; answered by OnFailoverAnswered within kCallTimeout.
struct Failover {
  size_t node;
  pb::FailoverRequest request;
};

// Stop and Signal do not wait for an answer.
struct Stop {
  size_t node;
  pb::Cause cause;
  bool kill_now;
};
struct Signal {
  size_t node;
  int signal_number;
};

// Shows where the threads of these nodes' ranks are. Has no answer.
struct ShowStacks {
  std::vector<size_t> nodes;
};

// Detaches a node; answered by OnDetached.
struct Detach {
  size_t node;
};

// Closes this end of the connection. A supervisor with nothing left to do then ends; any other
// tears its node down.
struct Goodbye {
  size_t node;
};

// Ends the connection at once in both directions; pending calls fail.
struct Abort {
  size_t node;
  std::string why;
};

// Waits for the end of a link; answered by OnLinkEnded when the supervisor has ended, its
// connection is lost or `limit` has passed.
struct AwaitEnd {
  size_t node;
  milliseconds limit;
};

// Stops showing output of ranks and waiting for it, because the reader of this process's output has
// stalled and the reports of the nodes wait behind the output.
struct DropOutput {};

// Sets a timer, replacing its earlier time; answered by the matching On...Timer.
struct SetTimer {
  SessionTimer timer;
  Clock::time_point when;
};

// Ends the session. SessionCore::End has the result. This is the last action.
struct Finish {};

}  // namespace action

using SessionAction =
    std::variant<action::Log, action::Record, action::ShowRanks, action::Connect,
                 action::StopConnecting, action::Prepare, action::Run, action::Renew,
                 action::Failover, action::Stop, action::Signal, action::ShowStacks, action::Detach,
                 action::Goodbye, action::Abort, action::AwaitEnd, action::DropOutput,
                 action::SetTimer, action::Finish>;

}  // namespace dslaunch

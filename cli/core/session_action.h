// Defines the actions of a session's core. LaunchSession carries them out on sockets and a
// terminal; the simulator carries them out on its virtual network.
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

// In all actions, `node` is an index into the plan's nodes.
namespace action {

// An action that logs a message of dslaunch itself. Created only if the log level includes the
// message.
struct Log {
  LogLevel level;
  std::string text;
};

// An action that adds a line to events.jsonl. `text` is the job's folder on the node, a message, or
// the name of a signal.
struct Record {
  enum class Kind { kConnected, kFailed, kLost, kInterrupted };
  Kind kind;
  size_t node;  // node of the event; unused for kInterrupted
  std::string text;
};

// An action that sets the number of ranks whose output is shown from now on.
struct ShowRanks {
  size_t ranks;
};

// An action that connects to a node; answered by OnConnected. `attempt` 0 connects at once. A
// larger `attempt` first waits for the pause after that many attempts (PauseAfter with attempt -
// 1).
struct Connect {
  size_t node;
  int attempt;
};

// An action that stops connecting to nodes and drops attempts that wait for their pause.
struct StopConnecting {};

// An action that prepares a node; answered by OnPrepared. LaunchSession adds the credentials to
// `request`.
struct Prepare {
  size_t node;
  pb::PrepareRequest request;
};

// An action that starts the stream of a node's events, which are delivered by OnListening, OnEvent
// and OnStreamEnd.
struct Run {
  size_t node;
  pb::RunRequest request;
};

// An action that renews a node's lease; answered by OnRenewed.
struct Renew {
  size_t node;
  std::optional<uint64_t> last_seen_us;
  milliseconds timeout;
};

// An action that sends a node the request for a failover; answered by OnFailoverAnswered within
// kCallTimeout.
struct Failover {
  size_t node;
  pb::FailoverRequest request;
};

// An action that stops the ranks of a node because of `cause`. Has no answer.
struct Stop {
  size_t node;
  pb::Cause cause;
  bool kill_now;
};
// An action that sends a signal to the ranks of a node. Has no answer.
struct Signal {
  size_t node;
  int signal_number;
};

// An action that shows the call stacks of the threads of these nodes' ranks. Has no answer.
struct ShowStacks {
  std::vector<size_t> nodes;
};

// An action that detaches a node; answered by OnDetached.
struct Detach {
  size_t node;
};

// An action that closes the front end's side of a node's connection. A supervisor without processes
// then ends; any other supervisor tears its node down.
struct Goodbye {
  size_t node;
};

// An action that ends a node's connection at once in both directions; pending calls fail.
struct Abort {
  size_t node;
  std::string why;
};

// An action that waits for the end of a link; answered by OnLinkEnded when the supervisor has
// ended, its connection is lost or `limit` has passed.
struct AwaitEnd {
  size_t node;
  milliseconds limit;
};

// An action that stops showing output of ranks and waiting for it. Used if the reader of this
// process's output has stalled, because the reports of the nodes wait behind the output.
struct DropOutput {};

// An action that sets a timer, replacing its earlier time; answered by the matching On...Timer.
struct SetTimer {
  SessionTimer timer;
  Clock::time_point when;
};

// An action that ends the session, whose result SessionCore::End returns. Always the last action.
struct Finish {};

}  // namespace action

using SessionAction =
    std::variant<action::Log, action::Record, action::ShowRanks, action::Connect,
                 action::StopConnecting, action::Prepare, action::Run, action::Renew,
                 action::Failover, action::Stop, action::Signal, action::ShowStacks, action::Detach,
                 action::Goodbye, action::Abort, action::AwaitEnd, action::DropOutput,
                 action::SetTimer, action::Finish>;

}  // namespace dslaunch
